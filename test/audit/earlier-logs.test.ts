import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Anchoring,
  type BuiltLog,
  buildLog,
  createTestNotary,
  stateBoot,
  type TestNotary,
} from '../support/audited-log.ts'
import type { Attack } from '../support/equivocating-server.ts'
import { openStage, type Stage } from './stage.ts'

const anchoring: Anchoring = { chain: null, nonce: 0 }

let stage: Stage
/** Three enclaves, one after the other: each was shown the heads of those before it. */
let first: BuiltLog
let second: BuiltLog
let third: BuiltLog
let trust: readonly string[]

beforeAll(async () => {
  stage = await openStage()
  first = await build({ batches: [3, 2] })
  second = await build({ batches: [4], shown: [first] })
  third = await build({ batches: [2], shown: [first, second] })
  trust = (await Promise.all([first, second, third].map((log) => stage.trust(log)))).flat()
})
afterAll(() => stage.close())

const build = async (options: Partial<Parameters<typeof buildLog>[1]>, notary?: TestNotary) =>
  buildLog(notary ?? (await createTestNotary()), {
    batches: [1],
    anchoring,
    attestedSizes: [1],
    ...options,
  })

async function audit(
  logs: readonly BuiltLog[],
  attack: Attack | null = null,
  words: readonly string[] = [],
) {
  stage.server.serve(logs, attack)
  return stage.audit(...trust, ...words)
}

describe('affidavit audit, of logs that enclaves were shown when they began', () => {
  it('an audit finds nothing when all earlier logs are listed and went on', async () => {
    const longer = await build({ batches: [2], after: { log: first, heads: 2 } }, first.notary)
    const { code, codes, outcomes, gateway } = await audit([third, second, longer])
    expect([code, codes, outcomes['boot statement']]).toEqual([0, [], 'passed'])
    expect(gateway['earlier logs']).toMatchObject({ outcome: 'passed' })
  })

  it('an audit catches an earlier log that is not listed any longer', async () => {
    const { code, codes, findings } = await audit([third, first])
    expect([code, codes]).toEqual([1, ['earlier_log_hidden']])
    expect(findings).toHaveLength(1)
    expect(findings[0]?.message).toContain(second.notary.account.notary)
    expect(findings[0]?.message).toContain(
      Buffer.from(second.heads[0]?.signature ?? []).toString('hex'),
    )
  })

  it('an audit catches a log that is cut to fewer leaves than the enclave was shown', async () => {
    const cut = await build({ batches: [], after: { log: first, heads: 1 } }, first.notary)
    expect(await audit([third, second, cut])).toMatchObject({
      code: 1,
      codes: ['earlier_log_mismatch'],
    })
  })

  it('an audit catches an earlier log with another history, of as many leaves and of more', async () => {
    for (const batches of [[5], [9]]) {
      const fork = await build({ batches, salt: 'fork' }, first.notary)
      expect(await audit([third, second, fork])).toMatchObject({
        code: 1,
        codes: ['earlier_log_mismatch'],
      })
    }
  })

  it('an audit catches a statement with a head more, or less, than the enclave was shown', async () => {
    const whole = third.bootStatement
    if (whole === null) throw new Error('expected a statement')
    const altered = { ...third, bootStatement: { ...whole, heads: whole.heads.slice(1) } }
    expect(await audit([altered, second, first])).toMatchObject({
      code: 1,
      codes: ['boot_statement_invalid'],
    })
  })

  it('an audit catches a statement of another enclave, and a document of another kind in its place', async () => {
    const swapped = { ...second, bootStatement: third.bootStatement }
    expect((await audit([third, swapped, first])).codes).toContain('attestation_swapped')
    const bare = await stateBoot(second.notary, [])
    for (const document of [second.document, second.attestations[0]?.document ?? '']) {
      const other = { ...second, bootStatement: { ...bare, document } }
      expect(await audit([other, first])).toMatchObject({
        code: 1,
        codes: ['boot_statement_invalid'],
      })
    }
  })

  it('an audit does not detect a withheld statement, but does not count it as passed', async () => {
    const attack: Attack = (question, honest) =>
      question.resource === 'log/boot-statement'
        ? (response) => {
            response.statusCode = 404
            response.end('{"error":{"message":"no such path"}}')
          }
        : honest()
    const { code, codes, outcomes } = await audit([third, first], attack)
    expect([code, codes, outcomes['boot statement']]).toEqual([0, [], 'not checked'])
  })

  it('an audit does not detect a log that the gateway kept from its enclaves', async () => {
    const kept = await build({ shown: [first] })
    expect(await audit([kept, first], null, await stage.trust(kept))).toMatchObject({
      code: 0,
      codes: [],
    })
  })
})
