"""Stops a credential that is missing, wrong or expired from ending in a traceback, in endless repeats or in a message."""

import json
from pathlib import Path

import pytest
from fault_proxy import refusal
from s3_stores import use

from shardtools.errors import StorageError, UsageError
from shardtools.storage.s3 import S3, forget_client
from shardtools.storage.s3._client import client

EXPIRED = refusal(400, "ExpiredToken", "The provided token has expired.")


@pytest.fixture
def environment(place, s3_store):
    """Of the proxy, as a dictionary to change."""
    return {**s3_store["environment"], "AWS_ENDPOINT_URL": place.proxy.endpoint, "AWS_ENDPOINT_URL_S3": place.proxy.endpoint}


def test_no_credentials_are_told(place, environment, monkeypatch, one_sentence):
    del environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
    use(environment, monkeypatch)
    with pytest.raises(StorageError) as caught:
        place.storage.get("x")
    assert "no credentials were found" in one_sentence(caught.value) and "after 1 attempt" in str(caught.value)


@pytest.mark.parametrize(
    "change, said",
    [({"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, "SignatureDoesNotMatch"), ({"AWS_ACCESS_KEY_ID": "WRONGKEY"}, "InvalidAccessKeyId")],
)
@pytest.mark.parametrize("call", ["get", "num_bytes", "sha256"])
def test_wrong_credentials_are_told_and_not_repeated(place, environment, monkeypatch, one_sentence, change, said, call):
    """HEAD has no words for it: they are asked for."""
    use({**environment, **change}, monkeypatch)
    with pytest.raises(StorageError) as caught:
        getattr(place.storage, call)("x")
    assert said in one_sentence(caught.value) and "after 1 attempt" in str(caught.value)
    assert not set(change.values()) & set(str(caught.value).split())


def test_a_reader_that_may_not_write_is_told(place, environment, s3_store, monkeypatch, one_sentence):
    users = json.loads(Path(s3_store["home"], "users.json").read_text())
    reader = {"AWS_ACCESS_KEY_ID": users["reader"]["accessKey"], "AWS_SECRET_ACCESS_KEY": users["reader"]["secretKey"]}
    place.lay({"x": b"1"})
    use({**environment, **reader}, monkeypatch)
    assert place.storage.get("x") == b"1"
    with pytest.raises(StorageError) as caught:
        place.storage.put("x", b"2")
    assert "AccessDenied" in one_sentence(caught.value) and "permission" in str(caught.value)


@pytest.mark.parametrize("call", ["get", "sha256"])
def test_new_credentials_in_the_file_are_taken_when_the_old_have_expired(place, environment, tmp_path, monkeypatch, call):
    key, secret = environment.pop("AWS_ACCESS_KEY_ID"), environment.pop("AWS_SECRET_ACCESS_KEY")
    path = tmp_path / "credentials"
    path.write_text("[default]\naws_access_key_id = OLD\naws_secret_access_key = OLD\n")
    use({**environment, "AWS_SHARED_CREDENTIALS_FILE": str(path)}, monkeypatch)
    place.lay({"x": b"1"})

    def expire(connection, request):
        path.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
        EXPIRED(connection, request)

    # A fault of another kind before it must not use up the one chance.
    place.meets(refusal(503, "SlowDown"), expire, EXPIRED if call == "sha256" else None, of="HeadObject GetObject")
    assert getattr(place.storage, call)("x") is not None


def test_expired_credentials_are_tried_twice_and_told(place, one_sentence):
    place.meets(*[EXPIRED] * 100)
    with pytest.raises(StorageError) as caught:
        place.storage.get("x")
    assert "after 2 attempts" in one_sentence(caught.value) and "give new credentials" in str(caught.value)


def test_a_session_token_is_sent_and_never_told(place, environment, monkeypatch, one_sentence):
    use({**environment, "AWS_SESSION_TOKEN": "session-token-of-a-test"}, monkeypatch)
    seen = []

    def refuse(connection, request):
        seen.append(request.headers.get("x-amz-security-token"))
        refusal(400, "InvalidToken", "The token session-token=session-token-of-a-test is malformed")(connection, request)

    place.meets(refuse)
    with pytest.raises(StorageError) as caught:
        place.storage.get("x")
    assert seen == ["session-token-of-a-test"] and "session-token-of-a-test" not in one_sentence(caught.value)


def test_a_missing_bucket_and_a_wrong_region_are_told(place, one_sentence):
    for call in (lambda: S3("s3://no-such-bucket/x").get("y"), lambda: list(S3("s3://no-such-bucket").names())):
        with pytest.raises(StorageError) as caught:
            call()
        assert "NoSuchBucket" in one_sentence(caught.value) and "no-such-bucket" in str(caught.value)
    place.meets(*[refusal(400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'eu-west-9'")] * 10)
    with pytest.raises(StorageError) as caught:
        place.storage.get("x")
    assert "AWS_REGION" in one_sentence(caught.value)


@pytest.mark.usefixtures("hasty")
def test_the_endpoint_that_was_asked_is_told_and_no_password_in_it(s3_store, monkeypatch, one_sentence):
    """Which of an option, the environment, a profile and Amazon it was is not to be guessed."""
    use({**s3_store["environment"], "AWS_ENDPOINT_URL_S3": "http://me:hunter2@127.0.0.1:1"}, monkeypatch)
    with pytest.raises(StorageError, match=r"attempts at http://127\.0\.0\.1:1; check the endpoint") as caught:
        S3("s3://bucket").get("x")
    assert "hunter2" not in one_sentence(caught.value)
    forget_client()


@pytest.mark.usefixtures("hasty")
def test_no_secret_is_told_of_what_cannot_be_used(s3_store, tmp_path, monkeypatch, one_sentence):
    """Of an endpoint that is none, of a helper that was to bring credentials, of a bucket with a user before it."""
    use({**s3_store["environment"], "AWS_ENDPOINT_URL_S3": "http://me:hun/ter2@127.0.0.1:1"}, monkeypatch)
    with pytest.raises(StorageError) as told:
        S3("s3://bucket").get("x")
    assert "ter2" not in one_sentence(told.value)
    config = tmp_path / "config"
    config.write_text('[default]\ncredential_process = /bin/sh -c "echo hunter2 >&2; exit 1"\n')
    bare = {name: value for name, value in s3_store["environment"].items() if "KEY" not in name}
    use({**bare, "AWS_CONFIG_FILE": str(config)}, monkeypatch)
    with pytest.raises(UsageError, match="credential_process") as caught:
        S3("s3://bucket").get("x")
    assert "hunter2" not in one_sentence(caught.value)
    with pytest.raises(UsageError, match="without a user") as caught:
        S3("s3://me:hunter2@bucket/x")
    assert "hunter2" not in one_sentence(caught.value)
    forget_client()


def test_a_profile_that_is_not_there_is_wrong_use(s3_store, monkeypatch, one_sentence):
    use({**s3_store["environment"], "AWS_PROFILE": "of-nobody"}, monkeypatch)
    with pytest.raises(UsageError) as caught:
        S3("s3://bucket").get("x")
    assert "of-nobody" in one_sentence(caught.value)
    forget_client()


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "s3://b/a//c", "s3://b/../c", "s3://b/./c"])
def test_what_is_no_place_is_wrong_use(uri, one_sentence):
    with pytest.raises(UsageError) as caught:
        S3(uri)
    assert uri in one_sentence(caught.value)


@pytest.mark.usefixtures("place")
def test_a_bucket_that_cannot_be_is_told(one_sentence):
    with pytest.raises(StorageError) as caught:
        S3("s3://Not A Bucket!/x").get("y")
    assert "Not A Bucket!" in one_sentence(caught.value)


@pytest.mark.parametrize("config, signed", [("", False), ("s3 =\n  payload_signing_enabled = true\n", True)])
def test_bodies_are_signed_where_the_config_file_asks_for_it(place, environment, tmp_path, monkeypatch, config, signed):
    """The request's own headers tell: the hash of the body, or a word in its place beside a CRC32."""
    (tmp_path / "config").write_text(f"[default]\n{config}")
    use({**environment, "AWS_CONFIG_FILE": str(tmp_path / "config")}, monkeypatch)
    sent = []
    client().meta.events.register("before-send.s3.PutObject", lambda request, **_: sent.append(dict(request.headers)))
    place.storage.put("x", b"abc")
    (headers,) = sent
    # What sha256sum and cksum -a crc32b (in base64) say of abc.
    digest = b"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert headers["X-Amz-Content-SHA256"] == (digest if signed else b"UNSIGNED-PAYLOAD")
    assert headers["x-amz-checksum-crc32"] == b"NSRBwg=="
    assert b"x-amz-checksum-crc32" in headers["Authorization"]
