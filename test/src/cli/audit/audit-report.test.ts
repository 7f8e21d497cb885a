import { PassThrough } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { createAuditProgress, LINE_INTERVAL_MS } from '#src/cli/audit/audit-report.ts'
import { openStage, type Stage } from '../../../audit/stage.ts'
import {
  type BuiltLog,
  buildLog,
  createTestNotary,
  type TestNotary,
} from '../../../support/audited-log.ts'
import { TEST_KEY } from '../../../support/equivocating-server.ts'

const OPTIONS = { anchoring: { chain: null, nonce: 0 }, batches: [1, 4, 2], attestedSizes: [5] }
const OF_CHAIN = 'anchors on chain, heads on chain, blocks of attestations'
const OF_GATEWAY = 'logs in the contract, transactions of relayers'

let stage: Stage
let notary: TestNotary
let log: BuiltLog
/** As a restart leaves it: before its first head attestation, and after it. */
let fresh: BuiltLog
let attested: BuiltLog
/** Everything that an auditor without a chain can say. */
let expected: readonly string[]

beforeAll(async () => {
  stage = await openStage()
  notary = await createTestNotary()
  log = await buildLog(notary, OPTIONS)
  fresh = await buildLog(await createTestNotary(), { ...OPTIONS, batches: [], attestedSizes: [] })
  attested = await buildLog(await createTestNotary(), {
    ...OPTIONS,
    batches: [],
    attestedSizes: [0],
  })
  const logs = [log, fresh, attested]
  const configurations = logs.map((one) =>
    encodeHex(digestBootConfiguration(one.notary.bootConfiguration)),
  )
  const roots = await Promise.all(logs.map((one) => stage.trust(one)))
  expected = [...roots.flat(), ...configurations.flatMap((digest) => ['--configuration', digest])]
})
afterAll(() => stage.close())

async function audit(logs: readonly BuiltLog[], ...words: readonly string[]) {
  stage.server.serve(logs)
  const run = await stage.audit(...expected, '--key', TEST_KEY, ...words)
  return { ...run, report: JSON.parse(run.stdout) }
}

describe('the conclusion of an audit', () => {
  it('the conclusion of an audit counts empty logs, and leaves out the checks that they have nothing for', async () => {
    const alone = await audit([log])
    expect(alone.report.conclusion).toBe(
      `CLEAN: nothing missing or contradictory was found in the log. Not checked, or only in part: ${OF_CHAIN}, requests in one log, measurements, ${OF_GATEWAY}.`,
    )
    const { code, report } = await audit([fresh, attested, log])
    expect(code).toBe(0)
    expect(report.conclusion).toBe(
      `CLEAN: nothing missing or contradictory was found in 3 logs, of which 2 are empty. Not checked, or only in part: ${OF_CHAIN}, measurements, requests in one log, ${OF_GATEWAY}.`,
    )
  })

  it('the checks that an empty log has nothing for stand in the lines of that log', async () => {
    const { outcomes, report } = await audit([fresh, log])
    for (const name of ['boot configuration', 'head signatures', 'growth', 'leaves', 'records'])
      expect([name, outcomes[name]]).toEqual([name, 'not checked'])
    expect(report.logs[0].checks[0]).toEqual({
      name: 'boot configuration',
      outcome: 'not checked',
      detail: expect.stringContaining('no attestation document that names it was seen'),
    })
  })

  it('the conclusion of an audit is not CLEAN when all logs are empty, which is no fault either', async () => {
    for (const [logs, words] of [
      [[fresh], 'the log is empty'],
      [[fresh, attested], 'all 2 logs are empty'],
    ] as const) {
      const { code, codes, report } = await audit(logs)
      expect([code, codes, report.ok]).toEqual([0, [], true])
      expect(report.conclusion).toMatch(
        new RegExp(
          `^NOTHING TO CHECK: ${words}\\. Not checked, or only in part: ${OF_CHAIN}, measurements, ${OF_GATEWAY}\\.$`,
        ),
      )
    }
  })
})

function openStream(isTTY: boolean) {
  const stream = Object.assign(new PassThrough(), {
    isTTY,
    columns: 100,
    cursorTo: () => true,
    clearLine: () => true,
  })
  let text = ''
  stream.setEncoding('utf8').on('data', (part: string) => {
    text += part
  })
  return { stream: stream as unknown as NodeJS.WriteStream, text: () => text }
}

describe('createAuditProgress', () => {
  it('the progress of an audit is a line now and then on what is not a terminal', async () => {
    const { stream, text } = openStream(false)
    let nowMs = 0
    const progress = createAuditProgress(stream, () => nowMs)
    progress.start('0xab', 100)
    for (const size of [10, 20, 30]) {
      nowMs += LINE_INTERVAL_MS / 2
      progress.update(size)
    }
    progress.stop()
    await new Promise(setImmediate)
    expect(text()).toBe('0xab: 20 of 100 leaves\n')
  })
})
