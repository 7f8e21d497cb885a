import { VERSION } from '../runtime/version.ts'

/** What a node tells of its machine. Nothing of it can be checked by the gateway. */
export type Hardware = {
  /** Null without a GPU that can compute. */
  readonly gpuModel: string | null
  /** Of all GPUs together, MB. */
  readonly vramMb: number
  readonly gpuCount: number
  readonly cpuModel: string
  readonly cpuCount: number
  readonly ramMb: number
  /** Speed of the network card, Mbit/s, null when unknown: the way to the gateway is not measured. */
  readonly networkMbps: number | null
  readonly operatingSystem: string
  readonly version: string
  /** Of one GPU, watts; null when the driver tells none. */
  readonly powerLimitWatts: number | null
}

/**
 * Gives the hardware of this machine, as `systeminformation` (and nvidia-smi through it) reads it. A machine without a GPU
 * is normal. Texts that cannot be read are `unknown`. Never rejects.
 */
export async function readHardware(): Promise<Hardware> {
  const { default: system } = await import('systeminformation')
  const [cpu, memory, os, graphics, networks] = await Promise.all([
    system.cpu().catch(() => null),
    system.mem().catch(() => null),
    system.osInfo().catch(() => null),
    system.graphics().catch(() => null),
    system.networkInterfaces('default').catch(() => null),
  ])
  const network = Array.isArray(networks) ? networks[0] : networks
  return {
    ...describeGpus(graphics?.controllers ?? []),
    cpuModel: [cpu?.manufacturer, cpu?.brand].filter(Boolean).join(' ') || 'unknown',
    cpuCount: Math.max(1, cpu?.cores ?? 1),
    ramMb: toMegabytes(memory?.total),
    networkMbps: (network?.speed ?? 0) > 0 ? (network?.speed ?? null) : null,
    operatingSystem: [os?.distro, os?.release, os?.arch].filter(Boolean).join(' ') || 'unknown',
    version: VERSION,
  }
}

/** A display adapter as systeminformation tells of it: memory in MB, `memoryTotal` by nvidia-smi alone. */
export type Controller = {
  readonly model: string
  readonly vram: number | null
  readonly memoryTotal?: number
  readonly powerLimit?: number
}

/** Display adapters of servers have a few MB of memory: they are no GPUs that compute. */
const VRAM_MB_MIN = 1024

/** Gives what a node tells of its GPUs, out of its display adapters. */
export function describeGpus(
  controllers: readonly Controller[],
): Pick<Hardware, 'gpuModel' | 'vramMb' | 'gpuCount' | 'powerLimitWatts'> {
  const gpus = controllers
    .map(({ model, vram, memoryTotal, powerLimit }) => ({
      model,
      powerLimit,
      vram: memoryTotal ?? vram ?? 0,
    }))
    .filter(({ vram }) => vram >= VRAM_MB_MIN)
  const [first] = gpus
  if (first === undefined) return { gpuModel: null, vramMb: 0, gpuCount: 0, powerLimitWatts: null }
  return {
    gpuModel: first.model || 'unknown',
    vramMb: Math.round(gpus.reduce((sum, { vram }) => sum + vram, 0)),
    gpuCount: gpus.length,
    powerLimitWatts: first.powerLimit === undefined ? null : Math.round(first.powerLimit),
  }
}

function toMegabytes(bytes: number | undefined): number {
  return Math.round((bytes ?? 0) / (1024 * 1024))
}
