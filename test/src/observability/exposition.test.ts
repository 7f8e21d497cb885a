import { spawnSync } from 'node:child_process'
import { expect, it } from 'vitest'
import { CHAT_REQUEST, postChat } from '../../support/calls.ts'
import { useGateway } from '../../support/gateway.ts'
import { needProgram } from '../../support/needs.ts'
import { type Family, readExposition } from '../../support/read-metrics.ts'

/** What a live gateway with real parts says to a collector. */
const gateway = await useGateway({ settings: { metrics: { host: '127.0.0.1', port: 0 } } })

const scrape = async () => (await fetch(gateway.metricsUrl ?? '')).text()
const PLAIN_PATH = '/v1/chat/completions'

const hostileModels = (count: number) =>
  Array.from({ length: count }, (_, at) => `marmalade-${at}"} 1\n{x="${'y'.repeat(at)}`)

async function callPlain(model: string): Promise<number> {
  const headers = { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' }
  const body = JSON.stringify({ ...CHAT_REQUEST, model })
  return (await fetch(gateway.url + PLAIN_PATH, { method: 'POST', headers, body })).status
}

const PROMTOOL = needProgram('promtool')

it('the exposition of a gateway is read by a strict reader, and grows with no name that a caller makes up', async () => {
  expect((await postChat(gateway, CHAT_REQUEST)).status).toBe(200)
  for (const model of hostileModels(2)) await callPlain(model)
  await expect.poll(async () => seriesOf(readExposition(await scrape()))).toBeGreaterThan(100)
  const before = seriesOf(readExposition(await scrape()))
  for (const model of hostileModels(30)) await callPlain(model)
  const text = await scrape()
  const families = readExposition(text)
  expect(seriesOf(families)).toBe(before)
  expect(text).not.toContain('marmalade')
  const sampleOf = (name: string) => families.find((each) => each.name === name)?.samples[0]
  expect(sampleOf('affidavit_database_up')?.value).toBe(1)
  expect(sampleOf('affidavit_build_info')?.labels).toMatchObject({
    node: process.versions.node,
    version: expect.stringMatching(/^\d+\.\d+\.\d+/),
  })
})

it.runIf(PROMTOOL.isMet)(
  PROMTOOL.title('the exposition of a gateway passes promtool check metrics'),
  async () => {
    const { status, stderr, stdout } = spawnSync('promtool', ['check', 'metrics'], {
      input: await scrape(),
      encoding: 'utf8',
    })
    expect({ status, reported: stdout + stderr }).toEqual({ status: 0, reported: '' })
  },
)

/** Series, but for those whose number Node.js decides. */
function seriesOf(families: readonly Family[]): number {
  return families
    .filter(({ name }) => name.startsWith('affidavit_'))
    .reduce((sum, { samples }) => sum + samples.length, 0)
}
