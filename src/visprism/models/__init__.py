"""Models: the zoo of visprism, and models of timm, torchvision and Hugging Face by name."""
