import { afterAll, beforeAll, expect, it } from 'vitest'
import { until } from '../support/until.ts'
import { type Machine, startMachine } from './machine.ts'
import { walkPage } from './walk.ts'

let machine: Machine

beforeAll(async () => {
  machine = await startMachine()
})
afterAll(() => machine.stop())

/** A number that a step printed before these words. */
function numberBefore(output: string, words: string): number {
  return Number(new RegExp(`([\\d.]+) ${words}`).exec(output)?.[1])
}

it('the runbook for sizing is followed and tells what each completion takes', async () => {
  const completions = 40
  for (let sent = 0; sent < completions; sent += 8)
    await Promise.all(Array.from({ length: 8 }, () => machine.complete({ content: 'hello' })))
  await until('all are mined', async () => {
    const text = await (await fetch(machine.gateways[0].metricsUrl)).text()
    return /^affidavit_anchors_unconfirmed 0$/m.test(text)
  })
  const variables = { ...machine.walking.variables, METRICS: machine.gateways[0].metricsUrl }
  await walkPage('sizing', { ...machine.walking, variables }, async (walk) => {
    await walk.section('Before you begin')
    const [cpu] = await walk.section('CPU')
    expect(numberBefore(cpu?.output ?? '', 'ms of CPU a call')).toBeGreaterThan(0.1)
    const [memory] = await walk.section('Memory')
    expect(numberBefore(memory?.output ?? '', 'MiB resident')).toBeGreaterThan(50)
    const [sockets] = await walk.section('Sockets and descriptors')
    expect(numberBefore(sockets?.output ?? '', 'descriptors open')).toBeGreaterThan(10)
    const [disk] = await walk.section('Disk')
    expect(numberBefore(disk?.output ?? '', 'completions')).toBe(completions)
    // An almost empty table still has its first pages.
    const kilobytes = numberBefore(disk?.output ?? '', 'KB each')
    expect(kilobytes).toBeGreaterThan(2)
    expect(kilobytes).toBeLessThan(50)
    const [gas] = await walk.section('Gas')
    const anchors = numberBefore(gas?.output ?? '', 'anchors')
    expect(anchors).toBeGreaterThanOrEqual(completions / 8)
    expect(anchors).toBeLessThanOrEqual(completions)
    expect(numberBefore(gas?.output ?? '', 'gas a completion')).toBe(
      Math.round((40_500 * anchors) / completions),
    )
  })
})
