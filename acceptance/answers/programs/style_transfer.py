"""Neural style transfer with L-BFGS, as in PyTorch's tutorial: `while run[0] <= num_steps` around a closure."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

imsize, num_steps = 384, 20
content_img = torch.rand(1, 3, imsize, imsize, device="cuda")
style_img = torch.rand(1, 3, imsize, imsize, device="cuda")


def gram_matrix(x):
    a, b, c, d = x.size()
    features = x.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = target.detach()

    def forward(self, x):
        self.loss = F.mse_loss(x, self.target)
        return x


class StyleLoss(nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = gram_matrix(target).detach()

    def forward(self, x):
        self.loss = F.mse_loss(gram_matrix(x), self.target)
        return x


def build():
    cnn = torchvision.models.vgg16(weights=None).features.to("cuda").eval()
    model, contents, styles, i = nn.Sequential(), [], [], 0
    for layer in cnn.children():
        if isinstance(layer, nn.Conv2d):
            i += 1
        if isinstance(layer, nn.ReLU):
            layer = nn.ReLU(inplace=False)
        model.append(layer)
        if isinstance(layer, nn.Conv2d):
            if i == 4:
                contents.append(ContentLoss(model(content_img)))
                model.append(contents[-1])
            if i <= 5:
                styles.append(StyleLoss(model(style_img)))
                model.append(styles[-1])
        if i == 6:
            break
    return model.requires_grad_(False), contents, styles


input_img = content_img.clone().requires_grad_(True)
model, content_losses, style_losses = build()
optimizer = torch.optim.LBFGS([input_img])
run = [0]
while run[0] <= num_steps:

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        loss = 1e6 * sum(s.loss for s in style_losses) + sum(c.loss for c in content_losses)
        loss.backward()
        run[0] += 1
        if run[0] % 10 == 0:
            print("run", run[0])
        return loss

    optimizer.step(closure)
print(input_img.detach().cpu().shape)
