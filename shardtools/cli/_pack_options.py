"""The options of ``shardtools pack``, a heading each."""

import click

from shardtools import plugins
from shardtools.build.order import AUTO
from shardtools.cli._endpoint import endpoint_option
from shardtools.cli._help import option, options
from shardtools.cli._recipe import recipe_options

OUTPUT = options(
    "Output",
    option("--to", "format", type=click.Choice(plugins.names("formats")), required=True, help="WebDataset tar or Mosaic MDS."),
    option(
        "--shard-size",
        instead_of="shard_samples",
        metavar="SIZE",
        help="Most bytes a shard may have. [default: 256MiB for wds, 64MiB for mds]",
    ),
    option("--shard-samples", instead_of="shard_size", type=int, metavar="N", help="Samples in every shard, in place of a size."),
    option("--compression", of="format", metavar="zstd[:LEVEL]", help="Compress MDS shards."),
    option("--hashes", of="format", metavar="NAMES", help="Hashes in MDS's index.json: sha1,xxh64."),
    option("--sidecars", metavar="NAMES", help="Index files of other readers of WDS: dali,wids,energon."),
    into="order",
)
OVERWRITE = options("Output", option("--overwrite", is_flag=True, help="Replace the dataset at DST once the new one is built."), into="run")
INPUT = options(
    "Input",
    option("--from", "source", type=click.Choice([AUTO, *plugins.names("sources")]), default=AUTO, help="What SRC is. [default: auto]"),
    option(
        "--group",
        of="source",
        metavar="[auto|first-dot|last-dot|file]",
        help="Which files are one sample: the same name up to the first or last dot, or each its own. [default: auto]",
    ),
    option("--fields", of="source", metavar="SPEC", help="Fields by file extension, ? after what may be missing: image=jpg|png,json?"),
    option("--columns", metavar="SPEC", help="MDS encodings in place of the inferred ones: meta=json,score=float32"),
    option("--map", of="source", metavar="SPEC", help="Fields made of record fields, ? after what may be missing: txt=text,cls=label?"),
    option("--key", of="source", metavar="FIELD", help="Record field that names the sample. [default: file and byte offset, or row]"),
    option("--key-column", of="format", metavar="NAME", help="MDS column that holds the key, or none. [default: key]"),
    option("--keep-path", of="source", is_flag=True, help="Keep the name before escaping in a field, path."),
    option("--label-from", of="source", metavar="[dir]", help="Label samples (cls) by their top-level folder."),
    option(
        "--embed",
        of="embed",
        metavar="SPEC",
        help="Record fields that hold paths of media, or lists of paths, whose bytes are taken in: image, masks:2=png|webp?",
    ),
    option(
        "--media-root",
        of="embed",
        metavar="DIR",
        help="Folder those paths are below; may be s3://BUCKET/PREFIX. [default: SRC, of a file the folder it lies in]",
    ),
    option("--allow-pickle", of="source", is_flag=True, help="Take MDS columns of pickles; their bytes pass through unopened."),
    option("--max-line-bytes", of="source", metavar="SIZE", help="Longest JSON line. [default: 512MiB]"),
    into="order",
)
TOKENS = options(
    "Tokens",
    option("--tokenizer", of="token", metavar="FILE|DIR", help="Store tokens: tokenizer.json, or the folder it lies in."),
    option(
        "--text-key", of="token", metavar="A.B", help="Record field, or file extension, of the text. [default: text; of --chat messages]"
    ),
    option("--seq-len", of="token", metavar="N", help="Tokens in a row."),
    option("--packing", of="token", metavar="[none|concat|bfd]", help="Documents into rows. [default: bfd with --seq-len, else none]"),
    option("--bos", of="token", metavar="[auto|none|TOKEN]", help="First token of a document. [default: auto]"),
    option("--eos", of="token", metavar="[auto|none|TOKEN]", help="Last token of a document. [default: auto]"),
    option(
        "--special-in-text", of="token", metavar="[split|parse|reject]", help="Text that spells a special token. [default: split, as text]"
    ),
    option("--long-docs", of="token", metavar="[split|truncate|drop]", help="Documents above a row. [default: split; chats: drop]"),
    option("--tail", of="token", metavar="[pad|drop]", help="Last row of a partition that is not full. [default: pad]"),
    option(
        "--chat",
        of="token",
        is_flag=True,
        help="Text is a list of messages, packed by the tokenizer's template with a loss mask. Chats longer than --seq-len are "
        "left out and counted.",
    ),
    option(
        "--doc-ids", of="token", is_flag=True, help="Keep which document each piece of a row is of: KEY, or KEY@OFFSET:TOTAL in tokens."
    ),
    option("--backend", of="token", metavar="[auto|hf|gigatoken]", help="Who encodes; the ids are the same. [default: auto]"),
    option("--dtype", of="token", metavar="[auto|uint16|uint32|int32]", help="Type of stored ids. [default: auto, by the largest]"),
    option("--max-doc-bytes", of="token", metavar="SIZE", help="Most text that is encoded at once. [default: 1MiB]"),
    option(
        "--oversized", of="token", metavar="[cut|reject]", help="Documents above that: encode in pieces cut at newlines. [default: cut]"
    ),
    into="order",
)
SELECTION = options(
    "Selection",
    option("--where", of="select", metavar="EXPR", help="Take only samples whose record fields fit: \"lang = 'en' and score >= 0.5\"."),
    option("--dedup", of="select", metavar="[key|content]", help="Leave out samples whose key, or whose fields, an earlier one has."),
    option("--limit", of="select", type=click.IntRange(1), metavar="N", help="Take the first N samples of those not left out."),
    option("--split", of="select", metavar="SPEC", help="Splits with their shares, by a hash of the key: train=0.98,val=0.02"),
    option("--group-by", of="select", metavar="FIELD", help="Record field by which --split goes, so that no group is in two."),
    option("--shuffle", is_flag=True, help="Permute all samples, or rows of tokens, of the dataset; needs --seed."),
    option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        metavar="S",
        help="Seed of --shuffle, and of the order of packed rows. [default: none; 0 for packed rows]",
    ),
    into="order",
)
IMAGES = options(
    "Images",
    option("--image-resize", of="image", metavar="N", help="Make images smaller whose shorter side has more pixels than N."),
    option("--image-quality", of="image", metavar="Q", help="JPEG and WebP quality of those made smaller, 1 to 100. [default: 92]"),
    option("--image-check", of="image", is_flag=True, help="Decode every image; those that are damaged are bad samples."),
    option("--image-fields", of="image", metavar="NAMES", help="Fields that hold images: image,thumb. [default: by name and first values]"),
    into="order",
)
RUN = options(
    "Run",
    option("--workers", of="engine", type=click.IntRange(1), metavar="N", help="Worker processes. [default: one per core]"),
    option("--engine", type=click.Choice(plugins.names("engines")), default="processes", help="Who does the work. [default: processes]"),
    option(
        "--ray-address",
        of="engine",
        metavar="HOST:PORT",
        help="Ray cluster for --engine ray, or auto on one of its nodes. [default: started here for this run]",
    ),
    option(
        "--part",
        metavar="I/N",
        help="Do the I-th of N shares of the work, and leave the rest to other runs. The last to end publishes. [default: everything]",
    ),
    option("--max-bad", default="0", metavar="N|P%", help="Bad samples to set aside before the run fails. [default: 0]"),
    *recipe_options(),
    option("--dry-run", is_flag=True, help="Show the plan, write nothing."),
    endpoint_option(),
    option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    into="run",
)
