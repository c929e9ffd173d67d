"""How models and data are named, for help texts."""

MODEL = """\
MODEL is one of
  timm:NAME               a model of timm
  torchvision:NAME        a classifier of torchvision
  hf:NAME or hf:FOLDER    an image classifier of Hugging Face
  NAME                    a model of the zoo (`visprism models` lists them)
  path/file.py:FUNCTION   a Python function that returns a torch.nn.Module
  FILE.safetensors        a checkpoint of `visprism train`, which states its model
Arguments follow after ?, a checkpoint after @; quote them for the shell:
  'timm:vit_tiny_patch16_224?img_size=32&patch_size=4&num_classes=10@best.safetensors'
"""
WEIGHTS = """\
Weights are random unless the model is named as
  NAME@FILE               safetensors, or a file that torch reads with weights_only=True
  NAME.TAG                weights inside the package, such as resnet20.shapes
                          (`visprism models --trained` lists them)
  NAME --pretrained       published weights of a model of timm, torchvision or Hugging Face,
                          which are downloaded, or the weights inside the package
  hf:FOLDER               the weights in the folder
The CIFAR-100 checkpoints of the authors of "How Do Vision Transformers Work?" load as
resnet50_32@FILE, vit_tiny_patch2_32@FILE, pit_tiny_patch2_32@FILE and
swin_tiny_patch1_window4_32@FILE.
"""
DATA = """\
DATA is one of
  shapes                  ten classes of textured shapes, drawn when needed
  cifar10, cifar100       from torchvision
  folder:DIR              a folder of images, or of one folder per class
  parquet:FILE-OR-DIR     Parquet files in the layout of Hugging Face
  hf:NAME                 a data set of Hugging Face
  cifar10_c:DIR, cifar100_c:DIR, imagenet_c:DIR
                          stored sets of corrupted images
Options follow after ?; quote them for the shell: 'shapes?size=64&target=texture'
"""
BOTH = f"{MODEL}\n{DATA}"
