"""The code that a job takes along: without what git ignores, and refused with names where it is too large."""

import subprocess

import pytest

from distrl.apps.jobs.code_package import code_in
from distrl.errors import ConfigError


@pytest.fixture
def project(tmp_path):
    """A folder with code, ignored files, an earlier run and caches."""
    texts = {
        ".gitignore": "*.bin\nlogs/\n",
        "mine/world.py": "x = 1\n",
        "data.bin": "0" * 1000,
        "logs/a.txt": "a",
        "runs/first/config.yaml": "seed: 1\n",
        "mine/runs/__init__.py": "r",
        "venv/lib/x.py": "v",
        "mine/__pycache__/world.pyc": "c",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("in_repository", [True, False])
def test_what_git_ignores_runs_and_caches_are_left_out(project, in_repository, tmp_path_factory):
    if in_repository:
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    package = code_in(project)
    assert [str(file) for file in package.files] == [".gitignore", "mine/runs/__init__.py", "mine/world.py"]
    assert package.size_bytes == len("*.bin\nlogs/\n") + len("rx = 1\n")
    assert str(package).endswith("in 3 files (runs/, .git/, .venv/, venv/, __pycache__/ and what git ignores left out)")
    copy = tmp_path_factory.mktemp("copy")
    package.copy_to(copy)
    assert {file.relative_to(copy).as_posix() for file in copy.rglob("*") if file.is_file()} == set(
        map(str, package.files)
    )


def test_without_git_ignored_files_come_along_and_the_plan_says_so(project, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    package = code_in(project)
    more = ["mine/runs/__init__.py", "mine/world.py"]
    assert [str(file) for file in package.files] == [".gitignore", "data.bin", "logs/a.txt", *more]
    assert str(package).endswith(
        "(runs/, .git/, .venv/, venv/, __pycache__/ left out; git is missing, so no .gitignore is)"
    )


@pytest.mark.parametrize("in_repository", [True, False])
def test_links_and_repositories_inside_come_along(project, in_repository, tmp_path_factory):
    if in_repository:
        subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    (project / "other").mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=project / "other", check=True)
    (project / "other" / "module.py").touch()
    shared = tmp_path_factory.mktemp("shared")
    (shared / "level.py").write_text("1")
    (shared / "back").symlink_to(project)
    (project / "linked").symlink_to(shared)
    (project / "gone").symlink_to("nowhere")
    package = code_in(project)
    names = {str(file) for file in package.files}
    assert names == {".gitignore", "mine/runs/__init__.py", "mine/world.py", "linked/level.py", "other/module.py"}
    copy = tmp_path_factory.mktemp("copy")
    package.copy_to(copy)
    assert (copy / "linked" / "level.py").read_text() == "1"


def test_a_home_directory_is_not_sent(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    with pytest.raises(ConfigError, match="is no project's: submit from the directory of your code"):
        code_in(project)


def test_an_unreadable_file_is_one_line(project, tmp_path_factory, monkeypatch):
    package = code_in(project)

    def refuse(source, _):
        raise PermissionError(13, "Permission denied", str(source))

    monkeypatch.setattr("shutil.copy", refuse)  # root could read it
    with pytest.raises(ConfigError, match=r"cannot be copied: .*\.gitignore: Permission denied; name what"):
        package.copy_to(tmp_path_factory.mktemp("copy"))


def test_too_large_a_package_names_its_largest_files(project):
    for number in range(4):
        (project / f"{number}.dat").write_bytes(b"0" * 1_000_000 * (number + 1))
    package = code_in(project)
    package.check_size(11_000_000, "Ray's job server")
    with pytest.raises(
        ConfigError,
        match=r"has 10.0 MB, and Ray's job server takes 9.0 MB; the largest files are 3.dat 4.0 MB, 2.dat 3.0 MB, "
        r"1.dat 2.0 MB: name them in .gitignore",
    ):
        package.check_size(9_000_000, "Ray's job server")
