"""One split is a side of its own, with the recipe of the whole. Stops a bench that forgets how the rows of a split were packed."""

from pathlib import Path

import pytest
from split_datasets import pack_splits

from shardtools.bench.readers.recipes import recipe_of
from shardtools.bench.spec import Layout, Workload
from shardtools.errors import UsageError


@pytest.fixture
def source(tree) -> Path:
    return tree({f"d/{i:02d}.txt": b"t" for i in range(20)})


@pytest.fixture(autouse=True)
def forget():
    recipe_of.cache_clear()


@pytest.mark.parametrize(("to", "name"), [("mds", "train"), ("wds", "train-*.tar"), ("wds", "train-000000.tar"), ("wds", ""), ("mds", "")])
def test_the_recipe_of_a_split_is_that_of_the_whole(source, tmp_path, to, name):
    manifest = pack_splits(source, tmp_path / "out", to)
    recipe = recipe_of(str(tmp_path / "out" / name))
    assert recipe is not None and recipe["selection"] == {"split": [list(pair) for pair in manifest.selection.split]}


@pytest.mark.parametrize("fault", ["damaged", "of another", "none"])
def test_what_no_manifest_names_has_no_recipe(source, tmp_path, fault):
    pack_splits(source, tmp_path / "out", "mds")
    if fault == "none":
        (tmp_path / "out" / "shardtools.manifest").unlink()
    elif fault == "damaged":
        (tmp_path / "out" / "shardtools.manifest").write_text("cut")
    else:
        (tmp_path / "out" / "train").rename(tmp_path / "out" / "dev")
    assert recipe_of(str(tmp_path / "out" / ("dev" if fault == "of another" else "train"))) is None


@pytest.mark.train
def test_streaming_dataset_wants_one_split(source, tmp_path):
    pytest.importorskip("streaming", reason="needs the extra train")
    from shardtools.bench.readers import _mosaic
    from shardtools.bench.readers.side import Delivery

    pack_splits(source, tmp_path / "out", "mds")
    layout = Layout(str(tmp_path / "out"), "mds", "streaming")
    delivery = Delivery(finish=lambda raw: raw, collate=list, timers=None)
    with pytest.raises(UsageError, match=r"name the folder of one split, such as .*/out/train"):
        _mosaic.open_layout(layout, Workload(), delivery)
