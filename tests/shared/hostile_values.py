"""Values that no argument was made for: empty, huge, of other scripts, not finite, not text."""

TEXTS = (
    *("", " ", "0", "-1", "-", "--", ",", ",,", "a,,b", "1,nan", "=", "/", "..", "../..", "x"),
    *("1e400", "nan", "inf", "-inf", "1e300", "1e-300", "1e-400", "9" * 30, "9" * 5000, "0x10"),
    *("1_0", "\u0663", "\uff13", "\u00bd", "\U0001f4a5", "\x00", "\ud800", "a" * 10_000, "%s"),
    *("{}", "*", "?", "1/0", "0/0", "1/", "0x0", "224x", "-5x5", "true", "none", "None"),
)
MODELS = (
    *("timm:", "hf:", "torchvision:", "file.py:", "a@", "@", "a?", "?b=c", "resnet20?"),
    *("resnet20?num_classes=-1", "resnet20?num_classes=nan", "resnet20?num_classes=0"),
    *("resnet20@", "resnet20@/dev/null", "resnet20.", "resnet20?x", "resnet20?=", "/dev/null"),
    f"resnet20?num_classes={'9' * 30}",
)
DATA = (
    *("folder:", "folder:/proc/self", "parquet:", "parquet:/dev/null", "hf:", "shapes?"),
    *("shapes?size=0", "shapes?size=-3", "shapes?size=1e9", "shapes?size=\u0663"),
    *("shapes?x=y", "shapes?size", "shapes?=", "cifar10_c:", "nonsense:x"),
    f"shapes?size={'9' * 30}",
)
DEVICES = ("cpu:-1", "cuda:99", "cuda:-1", "cuda:x", "meta", "xpu", "mps", "none:", "cpu,cpu")
