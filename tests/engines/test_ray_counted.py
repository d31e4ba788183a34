"""What is done again after a loss is counted once; stops progress beyond the whole, and a run that fails for bad samples it never had."""

import sys

import pytest

from shardtools.engines import Progress
from shardtools.engines.ray import Ray
from shardtools.engines.ray._attempts import Counted, Inbox, Mail
from shardtools.errors import UsageError


def mail(item: int, attempt: str, num_samples: int) -> Mail:
    return Mail(item, attempt, Progress(num_samples, 10 * num_samples, 0))


@pytest.fixture
def counted():
    """A counter and the list of what it reports."""
    reported: list[Progress] = []
    return Counted(reported.append), reported


def total(reported: list[Progress]) -> list[int]:
    return [sum(column) for column in zip(*reported, strict=True)]


def test_a_lost_attempt_is_taken_back_when_the_next_begins(counted):
    counter, reported = counted
    counter.begin(1)
    for one in (mail(1, "a", 4), mail(1, "a", 9), mail(1, "b", 2)):
        counter.note(one)
    assert reported == [Progress(4, 40, 0), Progress(5, 50, 0), Progress(-7, -70, 0)]
    counter.end(1, Progress(10, 100, 3))
    assert total(reported) == [10, 100, 3]


def test_mail_that_comes_late_changes_nothing(counted):
    counter, reported = counted
    counter.begin(1)
    counter.begin(2)
    counter.note(mail(1, "a", 4))
    counter.note(mail(1, "b", 1))
    counter.note(mail(1, "a", 8))  # from a node that was taken for lost
    assert total(reported) == [1, 10, 0]
    counter.end(1, Progress(10, 100, 0))
    counter.note(mail(1, "b", 9))
    counter.end(2, Progress(0, 0, 0))
    assert total(reported) == [10, 100, 0]
    assert Progress(0, 0, 0) not in reported


def test_the_inbox_keeps_the_latest_of_each_attempt_until_it_is_taken():
    inbox = Inbox()
    for one in (mail(1, "a", 1), mail(2, "c", 5), mail(1, "a", 2), mail(1, "b", 1)):
        inbox.put(one)
    assert inbox.take() == [mail(1, "a", 2), mail(2, "c", 5), mail(1, "b", 1)]
    assert inbox.take() == []


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch, one_sentence):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in sys.modules if name.startswith("shardtools.engines.ray._")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UsageError, match=r"expected the package ray .*pip install 'shardtools\[ray\]'") as caught, Ray():
        pass
    one_sentence(caught.value)
