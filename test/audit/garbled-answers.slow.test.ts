import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { type BuiltLog, buildLog, createTestNotary } from '../support/audited-log.ts'
import { TEST_KEY } from '../support/equivocating-server.ts'
import { openStage, type Stage } from './stage.ts'

let stage: Stage
let log: BuiltLog
let trust: readonly string[]

beforeAll(async () => {
  stage = await openStage()
  const anchoring = { chain: null, nonce: 0 }
  log = await buildLog(await createTestNotary(), {
    batches: [2, 3, 1, 2],
    anchoring,
    attestedSizes: [0, 2, 5],
  })
  trust = await stage.trust(log)
})
afterAll(() => stage.close())

type Path = readonly (string | number)[]

function placesIn(value: Json, path: Path = []): readonly Path[] {
  const entries: readonly (readonly [string | number, Json])[] = isJsonArray(value)
    ? [...value.entries()]
    : isJsonObject(value)
      ? Object.entries(value)
      : []
  return [
    ...(path.length > 0 ? [path] : []),
    ...entries.flatMap(([name, entry]) => placesIn(entry, [...path, name])),
  ]
}

function putAt(value: Json, [name, ...rest]: Path, put: Json): Json {
  if (name === undefined) return put
  if (isJsonArray(value))
    return value.map((entry, at) => (at === name ? putAt(entry, rest, put) : entry))
  if (!isJsonObject(value)) return value
  return { ...value, [name]: putAt(value[name] ?? null, rest, put) }
}

const HOSTILE: readonly Json[] = [
  null,
  true,
  0,
  -1,
  1,
  3,
  2 ** 53 - 1,
  1e300,
  '',
  '\u001b[2J',
  '0x',
  '00'.repeat(32),
  `0x${'00'.repeat(32)}`,
  `0x${'ff'.repeat(65)}`,
  [],
  [null],
  [[]],
  {},
  { ['__proto__']: 1 },
  'A'.repeat(3000),
]
const RESOURCES = [
  'logs',
  'log',
  'log/heads',
  'log/leaves',
  'log/inclusion',
  'log/consistency',
  'log/records',
]

describe('affidavit audit, of answers with one value replaced', () => {
  it('an audit of garbled answers always comes to a report, and never shows control characters', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...RESOURCES),
        fc.nat({ max: 2 }),
        fc.nat(),
        fc.constantFrom(...HOSTILE),
        async (resource, from, place, hostile) => {
          stage.server.serve([log], (question, honest) => {
            const answer = honest()
            if (question.resource !== resource || question.of < from) return answer
            const places = placesIn(answer)
            return putAt(answer, places[place % places.length] ?? [], hostile) as JsonObject
          })
          const { code, logs, findings, stdout } = await stage.audit(
            ...trust,
            '--key',
            TEST_KEY,
            '--timeout',
            '5',
          )
          expect(stdout).not.toContain('\u001b')
          expect(logs.length + findings.length).toBeGreaterThan(0)
          expect(code).toBe(findings.length === 0 ? 0 : 1)
        },
      ),
      { numRuns: 150, examples: [['logs', 0, 0, []]] },
    )
  })
})
