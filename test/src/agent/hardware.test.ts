import { describe, expect, it } from 'vitest'
import { describeGpus, readHardware } from '../../../src/agent/hardware.ts'
import { readLoad } from '../../../src/agent/load.ts'

describe('readHardware', () => {
  it('reads this machine, with or without a GPU', async () => {
    const hardware = await readHardware()
    expect(hardware.cpuCount).toBeGreaterThan(0)
    expect(hardware.ramMb).toBeGreaterThan(100)
    expect(hardware.operatingSystem).not.toBe('')
    expect(hardware.gpuModel === null).toBe(hardware.gpuCount === 0)
    expect(Number.isInteger(hardware.vramMb)).toBe(true)
  })
})

describe('describeGpus', () => {
  it('sums the memory of GPUs that compute, and leaves display adapters out', () => {
    const a100 = { model: 'NVIDIA A100', vram: 0, memoryTotal: 81_920, powerLimit: 399.6 }
    const display = { model: 'ASPEED', vram: 16 }
    expect(describeGpus([display, a100, a100])).toEqual({
      gpuModel: 'NVIDIA A100',
      vramMb: 163_840,
      gpuCount: 2,
      powerLimitWatts: 400,
    })
  })

  it('takes a GPU of which no driver tells anything by its memory', () => {
    expect(describeGpus([{ model: '', vram: 8192 }])).toEqual({
      gpuModel: 'unknown',
      vramMb: 8192,
      gpuCount: 1,
      powerLimitWatts: null,
    })
  })

  it.each([[[]], [[{ model: 'ASPEED', vram: null }]]])('takes %j as no GPU', (controllers) => {
    expect(describeGpus(controllers)).toEqual({
      gpuModel: null,
      vramMb: 0,
      gpuCount: 0,
      powerLimitWatts: null,
    })
  })
})

describe('readLoad', () => {
  it('gives percentages', async () => {
    const { cpuPercent, ramPercent, diskPercent } = await readLoad()
    for (const share of [cpuPercent, ramPercent, diskPercent]) {
      expect(share).toBeGreaterThanOrEqual(0)
      expect(share).toBeLessThanOrEqual(100)
    }
  })
})
