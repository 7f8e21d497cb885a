/** How busy this machine is, percent from 0 to 100, one decimal. */
export type Load = {
  readonly cpuPercent: number
  readonly ramPercent: number
  readonly diskPercent: number
  readonly gpus: readonly GpuLoad[]
}

export type GpuLoad = {
  readonly gpuPercent: number
  readonly vramPercent: number
  /** Of the power limit; 0 when the driver tells none. */
  readonly powerPercent: number
}

/**
 * Gives how busy this machine is, as `systeminformation` reads it; figures it cannot read are 0. Takes about half a second,
 * because the processor's load is measured over a while. Never rejects.
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
    // Only nvidia-smi tells how busy a GPU is: display adapters without figures are left out.
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
  return Number.isFinite(share) ? Math.round(Math.min(100, Math.max(0, share)) * 10) / 10 : 0
}
