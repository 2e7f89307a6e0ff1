"""Writes gpus/: what the kernel shows below /sys, /proc and /dev of six machines, by its documented names.

    python tests/data/make_gpus.py

None was copied from a machine. Names: kfd_topology.c and gpu/amdgpu/driver-misc.rst of the kernel; device
ids and names: amdgpu.ids of libdrm. The sizes are those that such cards have, what is in use is made up.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

GPUS = Path(__file__).parent / "gpus"
MIB = 1 << 20
GIB = 1 << 30

NAMES = """\
164E,	C1,	AMD Radeon Graphics
1586,	C1,	AMD Radeon 8060S Graphics
731F,	C4,	AMD Radeon RX 5700
744C,	C8,	AMD Radeon RX 7900 XTX
7550,	C0,	AMD Radeon RX 9070 XT
7550,	C3,	AMD Radeon RX 9070
"""


@dataclass(frozen=True)
class Gpu:
    version: int
    device: int
    revision: int
    units: int
    vram: int
    vram_used: int
    gtt: int
    gtt_used: int = 40 * MIB
    unique: int = 0
    bus: int = 3


RX9070 = Gpu(120001, 0x7550, 0xC3, 56, 17_095_983_104, 1_200 * MIB, 15 * GIB, unique=0x5A3C0F1122334455)
RX9070XT = Gpu(
    120001, 0x7550, 0xC0, 64, 17_095_983_104, 600 * MIB, 31 * GIB, unique=0x5A3C0F11AABBCCDD, bus=7
)
RX7900XTX = Gpu(110000, 0x744C, 0xC8, 96, 25_753_026_560, 2_000 * MIB, 31 * GIB, unique=0x1122000000000001)
RX5700 = Gpu(100100, 0x731F, 0xC4, 36, 8_573_157_376, 900 * MIB, 15 * GIB)
DESKTOP_APU = Gpu(100306, 0x164E, 0xC1, 2, 512 * MIB, 60 * MIB, 15 * GIB, bus=13)
STRIX_HALO = Gpu(110501, 0x1586, 0xC1, 40, 512 * MIB, 300 * MIB, 62 * GIB, 500 * MIB, bus=194)

MACHINES = {  # -> cards in the compute driver's order, GiB of memory, GiB free
    "rx9070": ([RX9070], 32, 24),
    "rx9070_igpu": ([DESKTOP_APU, RX9070], 32, 24),
    "strix_halo": ([STRIX_HALO], 124, 50),
    "rx5700": ([RX5700], 32, 20),
    "no_amd": ([], 16, 12),
    "two_cards": ([RX7900XTX, RX9070XT], 64, 50),
}


def main() -> None:
    shutil.rmtree(GPUS, ignore_errors=True)
    for name, (gpus, memory, available) in MACHINES.items():
        root = GPUS / name
        kib = GIB // 1024
        meminfo = f"MemTotal:       {memory * kib} kB\nMemAvailable:   {available * kib} kB"
        write(root / "proc/meminfo", meminfo)
        if not gpus:
            write(root / "sys/class/drm/card0/device/vendor", "0x10de")  # somebody else's
            continue
        write(root / "usr/share/libdrm/amdgpu.ids", "1.0.0\n" + NAMES.strip())
        write(root / "dev/kfd", "")
        nodes = root / "sys/class/kfd/kfd/topology/nodes"
        write(nodes / "0/gpu_id", "0")
        write(
            nodes / "0/properties", lines(cpu_cores_count=16, simd_count=0, gfx_target_version=0, vendor_id=0)
        )
        for number, gpu in enumerate(gpus):
            write_gpu(root, nodes / str(number + 1), gpu, number)


def write_gpu(root: Path, node: Path, gpu: Gpu, number: int) -> None:
    minor = 128 + number
    write(node / "gpu_id", str(20_000 + gpu.device))
    write(
        node / "properties",
        lines(
            cpu_cores_count=0,
            simd_count=2 * gpu.units,
            mem_banks_count=1,
            gfx_target_version=gpu.version,
            vendor_id=0x1002,
            device_id=gpu.device,
            location_id=gpu.bus << 8,
            domain=0,
            drm_render_minor=minor,
            unique_id=gpu.unique,
        ),
    )
    write(node / "mem_banks/0/properties", lines(heap_type=1, size_in_bytes=gpu.vram, flags=0))
    write(root / f"dev/dri/renderD{minor}", "")
    for display in (f"card{number}", f"renderD{minor}"):
        device = root / "sys/class/drm" / display / "device"
        write(device / "vendor", "0x1002")
        write(device / "device", f"0x{gpu.device:04x}")
        write(device / "revision", f"0x{gpu.revision:02x}")
        write(device / "gpu_busy_percent", "3")
        write(device / "mem_info_vram_total", str(gpu.vram))
        write(device / "mem_info_vram_used", str(gpu.vram_used))
        write(device / "mem_info_gtt_total", str(gpu.gtt))
        write(device / "mem_info_gtt_used", str(gpu.gtt_used))


def lines(**values: int) -> str:
    return "\n".join(f"{name} {value}" for name, value in values.items())


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n" if text else "")


if __name__ == "__main__":
    main()
