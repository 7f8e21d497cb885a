import { expect, it } from 'vitest'
import { describeGpus, readHardware, readLoad } from '#src/agent/machine.ts'

it('readHardware reads this machine, with or without a GPU', async () => {
  const hardware = await readHardware()
  expect(hardware.cpu_count).toBeGreaterThan(0)
  expect(hardware.ram).toBeGreaterThan(100)
  expect(hardware.operating_system).not.toBe('')
  expect(hardware.gpu_model === null).toBe(hardware.gpu_count === 0)
  expect(Number.isInteger(hardware.vram)).toBe(true)
})

it('describeGpus sums the memory of GPUs that compute, and leaves display adapters out', () => {
  const a100 = { model: 'NVIDIA A100', vram: 0, memoryTotal: 81_920, powerLimit: 399.6 }
  const display = { model: 'ASPEED', vram: 16 }
  expect(describeGpus([display, a100, a100])).toEqual({
    gpu_model: 'NVIDIA A100',
    vram: 163_840,
    gpu_count: 2,
    power_limit: 400,
  })
})

it('describeGpus takes a device without a name for a GPU by its memory', () => {
  expect(describeGpus([{ model: '', vram: 8192 }])).toEqual({
    gpu_model: 'unknown',
    vram: 8192,
    gpu_count: 1,
    power_limit: null,
  })
})

it.each([[[]], [[{ model: 'ASPEED', vram: null }]]])(
  'describeGpus finds no GPU in %j',
  (controllers) => {
    expect(describeGpus(controllers)).toEqual({
      gpu_model: null,
      vram: 0,
      gpu_count: 0,
      power_limit: null,
    })
  },
)

it('readLoad gives whole percentages of the load', async () => {
  const { cpuPercent, ramPercent, diskPercent } = await readLoad()
  for (const share of [cpuPercent, ramPercent, diskPercent]) {
    expect(Number.isInteger(share)).toBe(true)
    expect(share).toBeGreaterThanOrEqual(0)
    expect(share).toBeLessThanOrEqual(100)
  }
})
