import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { splitNamedEvents } from '#attestation/dialects/event-text.ts'
import { FormatError } from '#attestation/errors.ts'
import { parseExactJson, parseStrictJson } from '#attestation/json/parse-strict.ts'
import { type RecordReport, verifyRecord } from '#attestation/verify-record.ts'
import { verifyEventStream } from '#attestation/verify-stream.ts'
import { type ConformanceCase, readManifest, VECTORS } from '../../conformance/manifest.ts'

const bytesOf = (file = '') => new Uint8Array(readFileSync(join(VECTORS, file)))
const cases = readManifest().cases.filter(({ name }) =>
  /^(?:stream|answer)\/(?:responses|messages)\//.test(name),
)

/** The report of an answer or a kept stream. Null if the stream is refused. */
function judge({ kind, source, demands }: ConformanceCase): RecordReport | null {
  const request = parseStrictJson(bytesOf(demands.request))
  if (kind === 'answer') return verifyRecord(parseExactJson(bytesOf(source)), { request })
  try {
    const { idempotent = false } = demands
    return verifyEventStream(splitNamedEvents(bytesOf(source)), { request, idempotent })
  } catch (error) {
    if (error instanceof FormatError) return null
    throw error
  }
}

it.each(cases.map((one) => [one.name, one] as const))(
  'the published answer %s is judged as the manifest says',
  (_, one) => {
    const report = judge(one)
    if (one.expect.failed === null) {
      expect(report?.ok ?? false).toBe(false)
      return
    }
    const { failed, not_checked: open } = one.expect
    const named = (outcome: string) =>
      report?.checks
        .filter((check) => check.outcome === outcome)
        .map(({ name }) => name)
        .sort()
    // The check attestation is not part of a record's own checks.
    const own = failed.filter((name) => name !== 'attestation').toSorted()
    expect(named('failed')).toEqual(own)
    expect(named('not checked')).toEqual(open?.toSorted())
  },
)

it('there are answers and streams of both dialects', () => {
  expect(cases.length).toBeGreaterThan(60)
})
