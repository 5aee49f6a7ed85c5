import pytest

from distrl.apps.config.configuration import load
from distrl.apps.jobs.record import Job, JobRecord
from distrl.errors import ConfigError


def test_the_record_is_read_back(tmp_path):
    told = {"run_id": "a", "target": "here", "address": None, "run_dir": "/a", "store": "s3://b", "actors": 0}
    record = JobRecord.model_validate({**told, "submitted": 1.5, "handles": {"pid": "7"}})
    record.write(tmp_path)
    assert JobRecord.read(tmp_path) == record
    with pytest.raises(ConfigError, match=r"holds no job \(no job.json\); distrl jobs lists"):
        JobRecord.read(tmp_path / "elsewhere")


def test_the_configuration_of_a_job_hides_its_secrets_from_eyes_alone(tmp_path):
    sets = ["environment.kwargs={api_key: s3cret, level: 3}", "environment.id=X-v0"]
    job = Job("a", load(sets=sets), tmp_path)
    assert "s3cret" in job.config_text(secrets=True)
    shown = job.config_text(secrets=False)
    assert "s3cret" not in shown
    assert "level: 3" in shown
    assert load({}, {}).config == load(file={}).config
    (tmp_path / "job.yaml").write_text(job.config_text(secrets=True))
    assert load(file=tmp_path / "job.yaml").config == job.loaded.config
