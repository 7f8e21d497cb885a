import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type BuiltLog, buildLog, createTestNotary } from '../support/audited-log.ts'
import { type Attack, TEST_KEY } from '../support/equivocating-server.ts'
import { until } from '../support/until.ts'
import { openStage, type Stage } from './stage.ts'

const MAIN = join(import.meta.dirname, '../../src/cli/main.ts')
const BATCHES = Array.from({ length: 8 }, (_, at) => 1 + (at % 3))

let stage: Stage
let log: BuiltLog
/**
 * The log as it was before, and as another history of the same notary goes on from its second head.
 */
let young: BuiltLog
let other: BuiltLog
let trust: readonly string[]
let state: string
let files = 0

beforeAll(async () => {
  stage = await openStage()
  const notary = await createTestNotary()
  const anchoring = { chain: null, nonce: 0 }
  log = await buildLog(notary, { batches: BATCHES, anchoring, attestedSizes: [6] })
  young = { ...log, heads: log.heads.slice(0, 6), ...cutAt(log, log.heads[5]?.size ?? 0) }
  other = await buildLog(notary, {
    batches: BATCHES.slice(2),
    salt: 'other',
    anchoring,
    after: { log, heads: 2 },
  })
  trust = await stage.trust(log)
})
afterAll(() => stage.close())
beforeEach(() => {
  state = join(stage.folder, `state-${files++}.json`)
})

function cutAt({ leafData, leaves, records, attestations }: BuiltLog, size: number) {
  return {
    leafData: leafData.slice(0, size),
    leaves: leaves.slice(0, size),
    records: records.slice(0, size),
    attestations: attestations.filter((one) => one.size <= size),
  }
}

const audit = (...words: readonly string[]) =>
  stage.audit(...trust, '--key', TEST_KEY, '--state', state, ...words)

/** The gateway stops answering in the middle of the leaves. */
const cutOff: Attack = (question, honest) =>
  question.resource === 'log/leaves' && (question.number('start') ?? 0) > 10
    ? (response) => response.writeHead(500).end('{}')
    : honest()

const askedLeaves = () =>
  stage.server.asked
    .filter((path) => path.includes('/leaves?'))
    .map((path) => Number(/start=(\d+)/.exec(path)?.[1]))

describe('affidavit audit --state', () => {
  it('an audit that was cut off goes on without asking for leaves again, and comes to a clean end', async () => {
    stage.server.serve([log], cutOff)
    const first = await audit()
    expect([first.code, first.codes]).toEqual([1, ['answer_refused']])
    stage.server.serve([log])
    const second = await audit()
    expect([second.code, second.codes]).toEqual([0, []])
    expect(second.logs).toMatchObject([{ from: 12, to: 15, complete: true }])
    expect(Math.min(...askedLeaves())).toBe(12)
  })

  it('an audit that is interrupted keeps where it was, and the next run goes on from there', async () => {
    const silent: Attack = (question, honest) =>
      question.resource === 'log/leaves' && (question.number('start') ?? 0) > 10
        ? () => undefined
        : honest()
    stage.server.serve([log], silent)
    const words = ['audit', stage.server.url, ...trust, '--state', state]
    const child = spawn(process.execPath, [MAIN, ...words], {
      env: { PATH: process.env.PATH },
      stdio: 'pipe',
    })
    const errors = child.stderr.setEncoding('utf8').toArray()
    await until('it waits for leaves', () => askedLeaves().includes(14), 50_000)
    child.kill('SIGINT')
    const [code] = await once(child, 'exit')
    expect([code, (await errors).join('')]).toEqual([1, expect.stringContaining('interrupted')])
    stage.server.serve([log])
    const { code: next, logs } = await stage.audit(...trust, '--state', state)
    expect([next, logs[0]?.to]).toEqual([0, 15])
    expect(logs[0]?.from).toBe(12)
  })

  it('an audit has nothing to do when the log did not grow, and goes on when it did', async () => {
    stage.server.serve([young])
    expect((await audit()).logs).toMatchObject([{ from: 0, to: 12 }])
    expect((await audit()).logs).toMatchObject([{ from: 12, to: 12, heads: 0 }])
    stage.server.serve([log])
    const grown = await audit()
    expect([grown.code, grown.codes]).toEqual([0, []])
    expect(grown.logs).toMatchObject([{ from: 12, to: 15, heads: 2 }])
  })

  it('an audit catches a history that was rewritten since the last run', async () => {
    stage.server.serve([young])
    await audit()
    stage.server.serve([other])
    const { code, codes, outcomes } = await audit()
    expect([code, codes]).toEqual([1, ['history_rewritten']])
    expect(Object.values(outcomes)).not.toContain('passed')
  })

  it('an audit does not forget what an earlier run found, and does not count it twice', async () => {
    const drop: Attack = (question, honest) => {
      const answer = honest()
      if (question.resource !== 'log/records') return answer
      const records = (answer.records as readonly { receipt: { index: number } }[]).filter(
        ({ receipt }) => receipt.index !== 9,
      )
      return { ...answer, records: records as never }
    }
    stage.server.serve([young], drop)
    expect((await audit()).findings).toMatchObject([
      { code: 'record_missing', where: 'record 9', earlier: false },
    ])
    stage.server.serve([log])
    const second = await audit()
    expect(second.code).toBe(1)
    expect(second.findings).toMatchObject([
      { code: 'record_missing', where: 'record 9', earlier: true },
    ])
  })

  it('an audit refuses to go on with other expectations, which would leave a part unchecked', async () => {
    stage.server.serve([young])
    await audit()
    const { code, stderr } = await stage.audit(...trust, '--state', state)
    expect([code, stderr]).toEqual([2, expect.stringContaining('other options')])
    expect(stderr).toContain('another list of releases')
  })

  it('an audit keeps its state for its owner alone, and refuses a broken state', async () => {
    stage.server.serve([young])
    await audit()
    expect((await stat(state)).mode & 0o777).toBe(0o600)
    const text = await readFile(state, 'utf8')
    for (const broken of [
      '',
      '{}',
      text.slice(0, 200),
      text.replace(/(?<="hashes":\[")../, (byte) => (byte === '00' ? '01' : '00')),
    ]) {
      await writeFile(state, broken)
      const { code, stderr } = await audit()
      expect([code, stderr]).toEqual([2, expect.stringContaining('is not the state of an audit')])
    }
  })
})

describe('affidavit audit --from --to', () => {
  it('an audit of a range looks at its records and anchors alone, and builds the tree from the first leaf', async () => {
    stage.server.serve([log])
    const { code, codes, logs, outcomes } = await stage.audit(
      ...trust,
      '--key',
      TEST_KEY,
      '--from',
      '10',
      '--to',
      '14',
    )
    expect([code, codes]).toEqual([0, []])
    expect(logs).toMatchObject([{ from: 0, to: 15, complete: true }])
    expect(outcomes).toMatchObject({ growth: 'not checked', leaves: 'passed', records: 'passed' })
    const starts = stage.server.asked
      .filter((path) => path.includes('/records?'))
      .map((path) => Number(/start=(\d+)/.exec(path)?.[1]))
    expect(Math.min(...starts)).toBe(10)
    expect(Math.min(...askedLeaves())).toBe(0)
  })

  it.each(['0', '3601', 'soon'])('an audit refuses a timeout of %s seconds', async (seconds) => {
    const { code, stderr } = await stage.audit('--timeout', seconds)
    expect([code, stderr]).toEqual([2, expect.stringContaining('from 1 to 3600')])
  })
})
