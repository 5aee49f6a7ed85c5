from distrl.jobs.kubernetes_room import cpus


def test_quantities_are_counted():
    assert [cpus(text) for text in ("16", "3920m", "1.5", "2k", "12Ki")] == [16.0, 3.92, 1.5, 2000.0, 0.0]
