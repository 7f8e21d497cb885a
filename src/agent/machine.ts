import type { Load } from '../nodes/protocol/control-frames.ts'
import type { NodeHardware } from '../nodes/protocol/registration.ts'
import { VERSION } from '../runtime/version.ts'

/**
 * Uses `systeminformation`, which uses nvidia-smi. A text that cannot be read becomes `unknown`.
 * The network's speed is that of the network card, not of the route to the gateway. Never rejects.
 */
export async function readHardware(): Promise<NodeHardware> {
  const { default: system } = await import('systeminformation')
  const [cpu, memory, os, graphics, networks] = await Promise.all([
    system.cpu().catch(() => null),
    system.mem().catch(() => null),
    system.osInfo().catch(() => null),
    system.graphics().catch(() => null),
    system.networkInterfaces('default').catch(() => null),
  ])
  const network = Array.isArray(networks) ? networks[0] : networks
  const networkMbps = (network?.speed ?? 0) > 0 ? (network?.speed ?? null) : null
  return {
    ...describeGpus(graphics?.controllers ?? []),
    cpu_model: [cpu?.manufacturer, cpu?.brand].filter(Boolean).join(' ') || 'unknown',
    cpu_count: Math.max(1, cpu?.cores ?? 1),
    ram: toMegabytes(memory?.total),
    network_download_speed: networkMbps,
    network_upload_speed: networkMbps,
    operating_system: [os?.distro, os?.release, os?.arch].filter(Boolean).join(' ') || 'unknown',
    version: VERSION,
  }
}

/** From `systeminformation`. Memory is in MB. Only nvidia-smi reports `memoryTotal`. */
type Controller = {
  readonly model: string
  readonly vram: number | null
  readonly memoryTotal?: number
  readonly powerLimit?: number
}

/** GPUs for computing have at least this memory. Some servers have an adapter with a few MB. */
const VRAM_MB_MIN = 1024

/** The memory is the sum of all GPUs. The power limit is that of one GPU. */
export function describeGpus(
  controllers: readonly Controller[],
): Pick<NodeHardware, 'gpu_model' | 'vram' | 'gpu_count' | 'power_limit'> {
  const gpus = controllers
    .map(({ model, vram, memoryTotal, powerLimit }) => ({
      model,
      powerLimit,
      vram: memoryTotal ?? vram ?? 0,
    }))
    .filter(({ vram }) => vram >= VRAM_MB_MIN)
  const [first] = gpus
  if (first === undefined) return { gpu_model: null, vram: 0, gpu_count: 0, power_limit: null }
  return {
    gpu_model: first.model || 'unknown',
    vram: Math.round(gpus.reduce((sum, { vram }) => sum + vram, 0)),
    gpu_count: gpus.length,
    power_limit: first.powerLimit === undefined ? null : Math.round(first.powerLimit),
  }
}

function toMegabytes(bytes: number | undefined): number {
  return Math.round((bytes ?? 0) / (1024 * 1024))
}

/**
 * A figure that cannot be read is 0. Takes about half a second, because the processor's load is
 * measured over a period. Never rejects.
 */
export async function readLoad(): Promise<Load> {
  const { default: system } = await import('systeminformation')
  const [cpu, memory, disks, graphics] = await Promise.all([
    system.currentLoad().catch(() => null),
    system.mem().catch(() => null),
    system.fsSize().catch(() => []),
    system.graphics().catch(() => null),
  ])
  const root = disks.find(({ mount }) => mount === '/') ?? disks[0]
  return {
    cpuPercent: percent(cpu?.currentLoad, 100),
    ramPercent: percent(memory?.active, memory?.total),
    diskPercent: percent(root?.used, root?.size),
    // Only nvidia-smi reports how busy a GPU is. Adapters without this figure are left out.
    gpus: (graphics?.controllers ?? [])
      .filter(({ utilizationGpu }) => typeof utilizationGpu === 'number')
      .map((gpu) => ({
        gpuPercent: percent(gpu.utilizationGpu, 100),
        vramPercent: percent(gpu.memoryUsed, gpu.memoryTotal),
        powerPercent: percent(gpu.powerDraw, gpu.powerLimit),
      })),
  }
}

function percent(part: number | undefined, whole: number | undefined): number {
  const share = ((part ?? 0) / (whole ?? 0)) * 100
  return Number.isFinite(share) ? Math.round(Math.min(100, Math.max(0, share))) : 0
}
