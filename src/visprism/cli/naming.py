"""Naming: how a user says which model and which data, for the help texts."""

MODEL = """\
MODEL is one of
  timm:NAME             any model of timm
  torchvision:NAME      any classifier of torchvision
  hf:NAME-OR-FOLDER     any image classifier of Hugging Face
  NAME                  a model of our zoo (`visprism models` lists them)
  path/file.py:FUNCTION a function of yours that returns a torch.nn.Module
  FILE.safetensors      a checkpoint of `visprism train`, which knows its model
followed, if need be, by arguments and a checkpoint, in quotes:
  'timm:vit_tiny_patch16_224?img_size=32&patch_size=4&num_classes=10@best.safetensors'
"""
WEIGHTS = """\
Weights are random, or come from
  NAME@FILE             .safetensors, as visprism and timm write it, or a pickle of tensors;
                        whatever wraps a state dict is taken off, and a pickle that would run
                        code is refused
  NAME.TAG              such as resnet20.cifar10: weights inside the package, which
                        `visprism models --trained` lists
  --pretrained          the default weights of NAME, timm:, torchvision: or hf:NAME; the last
                        three fetch them, or have them here
  hf:FOLDER             as they lie there
The checkpoints for CIFAR-100 of the authors of "How do vision transformers work?" load as
resnet50_32@FILE, vit_tiny_patch2_32@FILE, pit_tiny_patch2_32@FILE and
swin_tiny_patch1_window4_32@FILE.
"""
DATA = """\
DATA is one of
  shapes                drawn on the fly as large as the models want, nothing to download
  cifar10, cifar100     by torchvision
  folder:DIR            a folder of images, or of one folder for each class
  parquet:FILE-OR-DIR   in the layout of Hugging Face
  hf:NAME               a data set of Hugging Face
  cifar10_c:DIR, cifar100_c:DIR, imagenet_c:DIR  stored corrupted sets
followed, if need be, by options, in quotes: 'shapes?size=64&target=texture'
"""
BOTH = f"{MODEL}\n{DATA}"
