# Embed a gallery with a ViT from timm and keep the patch tokens for a visualisation later.
import timm
import torch

model = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=0).cuda().eval()
tokens = []
for start in range(0, 640, 32):
    batch = torch.zeros(32, 3, 224, 224, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        tokens.append(model.forward_features(batch))
tokens = torch.cat([t.float().mean(1) for t in tokens])
print(tokens.shape)
