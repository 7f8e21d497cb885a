import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { compareExchange } from '#attestation/compare-exchange.ts'
import { BUNDLE_CHECKS } from '#attestation/evidence/bundle-checks.ts'
import { ATTESTATION_CODES } from '#attestation/nitro/attestation-error.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { type ConformanceCase, faultsOf, readManifest, VECTORS } from './manifest.ts'

const manifest = readManifest()
const { cases } = manifest

/**
 * Checks that never fail alone, because by the rules another check reads the same value. They fail
 * together with these.
 */
const TOGETHER: Readonly<Record<string, readonly string[]>> = {
  'request hash': ['request hash', 'receipt'],
  'public key': ['public key', 'signature', 'tree head'],
}

function failingExactly(name: string, kinds: readonly ConformanceCase['kind'][]): boolean {
  const least = TOGETHER[name] ?? [name]
  return cases.some(({ kind, expect: { failed } }) => {
    if (!kinds.includes(kind) || failed === null) return false
    // A key that is not a point gives no account, and so no event: the last check of bundles fails
    // too.
    const rest = name === 'public key' ? failed.filter((one) => one !== 'anchor outcome') : failed
    return rest.length === least.length && least.every((one) => rest.includes(one))
  })
}

describe('the manifest', () => {
  it('the manifest is of its schema, which refuses a path outside and an unknown member', () => {
    expect(faultsOf(manifest)).toBeNull()
    const [first] = cases
    expect(faultsOf({ ...manifest, cases: [{ ...first, source: '../secret.json' }] })).toMatch(
      /pattern/,
    )
    expect(faultsOf({ ...manifest, cases: [{ ...first, more: 1 }] })).toMatch(/additional/)
  })

  it('the manifest names every file of conformance/, and every named file is there', () => {
    const named = new Set(
      cases.flatMap(({ source, demands }) => [
        source,
        ...(demands.roots ?? []),
        ...(demands.releases ?? []),
        ...(demands.crls ?? []),
        ...[demands.request, demands.answer, demands.policy].flatMap((file) => file ?? []),
      ]),
    )
    expect([...named].filter((file) => !existsSync(join(VECTORS, file)))).toEqual([])
    const files = readdirSync(join(VECTORS, 'conformance'), { recursive: true, encoding: 'utf8' })
    const made = files.filter((file) => /\.[a-z]+$/.test(file)).map((file) => `conformance/${file}`)
    expect(made.filter((file) => !named.has(file))).toEqual([])
    expect(made.length).toBeGreaterThan(400)
  })

  it('the manifest has cases of every kind and verdict', () => {
    const seen = new Set(cases.map(({ kind, expect: { verdict } }) => `${kind} ${verdict}`))
    // A source without boot configuration or anchor is never verified.
    for (const kind of ['record', 'stream', 'answer']) {
      for (const verdict of ['incomplete', 'not_accepted', 'invalid'])
        expect(seen).toContain(`${kind} ${verdict}`)
      expect(seen).not.toContain(`${kind} verified`)
    }
    for (const pair of [
      'bundle verified',
      'bundle incomplete',
      'bundle not_accepted',
      'bundle invalid',
    ])
      expect(seen).toContain(pair)
    expect(seen).toContain('document verified')
  })
})

describe('every check has a case that fails nothing else', () => {
  const neverFailed = ['outcome', 'other requests']
  it.each(Object.keys(BUNDLE_CHECKS).filter((name) => !neverFailed.includes(name)))(
    'the check %s of a bundle has a case that fails nothing else',
    (name) => {
      expect(failingExactly(name, ['bundle'])).toBe(true)
    },
  )

  it.each(neverFailed)('the check %s fails in no case and is left open in some', (name) => {
    expect(cases.some(({ expect: { failed } }) => failed?.includes(name))).toBe(false)
    expect(
      cases.some(
        ({ expect: { verdict, not_checked: open } }) =>
          verdict === 'incomplete' && open?.includes(name) === true,
      ),
    ).toBe(true)
  })

  const recordChecks = verifyRecord({}).checks.map(({ name }) => name)
  it.each([...recordChecks.filter((name) => name !== 'anchor'), 'attestation'])(
    'the check %s of a record, an answer or a stream has a case that fails nothing else',
    (name) => {
      expect(failingExactly(name, ['record', 'answer', 'stream'])).toBe(true)
    },
  )

  it('the check anchor of a record is never made', () => {
    expect(recordChecks).toContain('anchor')
    const records = cases.filter(({ kind }) => kind !== 'bundle' && kind !== 'document')
    expect(
      records.every(
        ({ expect: { not_checked: open } }) => open === null || open.includes('anchor'),
      ),
    ).toBe(true)
  })

  const kept = { request: {}, answer: { kind: 'whole', answer: {} } } as const
  it.each(compareExchange({}, kept).map(({ name }) => name))(
    'the check %s has a case for bundles and a case for records that fail nothing else',
    (name) => {
      expect(failingExactly(name, ['bundle'])).toBe(true)
      expect(failingExactly(name, ['record'])).toBe(true)
    },
  )

  it('every code of a document has a case, but for codes that the command line never comes to', () => {
    const refused = new Set(
      cases.flatMap(({ kind, expect: { failed } }) => (kind === 'document' ? (failed ?? []) : [])),
    )
    expect(Object.keys(ATTESTATION_CODES).filter((code) => !refused.has(code))).toEqual([
      // Lists for other certificates end the command before the document is verified.
      'revocation_list_foreign',
      'revocation_list_not_yet_valid',
    ])
  })
})
