import { readFileSync } from 'node:fs'
import { Wallet } from 'ethers'
import { expect, it } from 'vitest'
import type { BundleCheckName } from '#attestation/evidence/bundle-checks.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import { type JsonPath, otherLastDigit, placesIn, replaceAt, valueAt } from '../mutate-json.ts'
import { buildEvidence, signAnchor } from './build-evidence.ts'

const { bundle, policy, chain } = buildEvidence()

type Row = readonly [
  field: string,
  change: (value: Json) => Json,
  failed: readonly BundleCheckName[],
]

const LEAF: readonly BundleCheckName[] = ['receipt in log']
const BOOT: readonly BundleCheckName[] = ['boot configuration', 'expected configuration']

/**
 * Every member of the format, `*` for any item of an array: a change in its form, and the checks
 * that name it.
 */
const FIELDS: readonly Row[] = [
  ['format', flip, ['format']],
  ['version', add, ['format']],
  ['record.request', grow, ['request hash', 'hash', 'signature', 'receipt']],
  ['record.response', grow, ['response hash', 'hash', 'signature', 'receipt']],
  ['record.hash', flip, ['hash']],
  ['record.public_key', otherKey, ['signature', 'attestation key', 'tree head', 'anchor outcome']],
  ['record.signature', flip, ['signature']],
  ['record.tx_hash', flip, ['transaction hash']],
  ['record.attestation', flipSignature, ['attestation document']],
  ['record.created_at', add, ['created_at']],
  ['record.receipt.version', add, ['format']],
  ['record.receipt.index', add, LEAF],
  ['record.receipt.hash', flip, ['receipt', ...LEAF]],
  ['record.receipt.request_hash', flip, ['request hash', 'receipt', ...LEAF]],
  ['record.receipt.response_hash', flip, ['response hash', 'receipt', ...LEAF]],
  ['record.receipt.forwarded_hash', flip, LEAF],
  ['record.receipt.received_hash', flip, LEAF],
  ['record.receipt.provider.name', flip, ['provider', ...LEAF]],
  ['record.receipt.provider.origin', flip, ['provider', ...LEAF]],
  ['record.receipt.provider.tls.protocol', flip, LEAF],
  ['record.receipt.provider.tls.spki_sha256', flip, LEAF],
  ['record.receipt.provider.tls.subject', flip, LEAF],
  ['record.receipt.provider.tls.issuer', flip, LEAF],
  ['record.receipt.model.requested', flip, ['receipt', ...LEAF]],
  ['record.receipt.model.returned', flip, ['receipt', ...LEAF]],
  ['record.receipt.outcome', () => 'upstream_error', LEAF],
  ['record.receipt.started_at', add, LEAF],
  ['record.receipt.finished_at', add, ['created_at', ...LEAF]],
  ['record.receipt.stream_hash', () => '00'.repeat(32), ['receipt', ...LEAF]],
  ['record.receipt.attempt', add, LEAF],
  ['record.receipt.encrypted', () => true, LEAF],
  ['record.receipt.credential.from', () => 'none', LEAF],
  ['record.receipt.credential.demanded', () => true, ['receipt', ...LEAF]],
  ['record.receipt.dialect', flip, ['format']],
  // The path from this leaf has the same form in a log of one leaf more: the head's signature gives
  // it away.
  ['record.log.size', add, ['tree head', 'anchor', 'anchor outcome']],
  ['record.log.root', flip, [...LEAF, 'tree head', 'anchor', 'anchor outcome']],
  ['record.log.signature', flip, ['tree head', 'anchor']],
  ['record.log.path.*', flip, LEAF],
  ['record.log.chain_id', add, ['boot configuration', 'tree head', 'anchor']],
  ['record.log.contract', flip, ['boot configuration', 'tree head', 'anchor', 'anchor outcome']],
  ['boot_configuration.protocol_version', add, BOOT],
  ['boot_configuration.providers.*.name', flip, [...BOOT, 'provider']],
  ['boot_configuration.providers.*.origin', flip, [...BOOT, 'provider']],
  ['boot_configuration.providers.*.path', flip, BOOT],
  ['boot_configuration.providers.*.models.*', flip, BOOT],
  ['boot_configuration.ca_sha256', flip, BOOT],
  ['boot_configuration.chain_id', add, BOOT],
  ['boot_configuration.contract', flip, BOOT],
  ['transaction', otherTransaction, ['transaction hash', 'transaction in block']],
  ['block.number', add, ['block header']],
  ['block.hash', flip, ['block header', 'block on chain']],
  ['block.header', flip, ['block header']],
  ['block.transaction_index', add, ['transaction in block', 'anchor outcome']],
  ['block.transaction_proof.*', flip, ['transaction in block']],
  ['block.receipt_proof.*', flip, ['anchor outcome']],
]

it('the bundle as it was made passes every check', async () => {
  const report = await verifyBundle(bundle, policy, { chain })
  expect(report.checks.filter(({ outcome }) => outcome !== 'passed')).toEqual([])
  expect(report).toMatchObject({ verdict: 'verified', open: [], redacted: [] })
})

it.each(FIELDS)(
  'a bundle with the field %s altered fails at exactly the checks in the table',
  async (field, change, failed) => {
    expect(placesOf(field)).not.toEqual([])
    for (const path of placesOf(field)) {
      // Of the providers, the first is the receipt's.
      const isOtherProvider = path[1] === 'providers' && path[2] !== 0
      const altered = replaceAt(bundle, path, change(valueAt(bundle, path)))
      const report = await verifyBundle(altered, policy, { chain })
      const names = report.checks
        .filter(({ outcome }) => outcome === 'failed')
        .map(({ name }) => name)
      expect(names).toEqual(isOtherProvider ? failed.filter((name) => name !== 'provider') : failed)
      expect(report).toMatchObject({ verdict: 'invalid', facts: null })
    }
  },
)

it('the table of fields has every member of the bundle and of the published schema', () => {
  const covered = new Set(FIELDS.map(([field]) => field))
  const members = placesIn(bundle)
    .filter((path) => !isContainer(valueAt(bundle, path)))
    .map(fieldOf)
  expect(members.filter((field) => !covered.has(field))).toEqual([])
  // What stands in place of what was left out is tried in redact-bundle.test.ts, what a lost
  // anchor adds in anchor-checks.test.ts. What is stated of an erasure nothing binds.
  const erased = ['at', 'by', 'reason'].map((member) => `record.erased.${member}`)
  const elsewhere = [
    // Without members: any is refused.
    'record.receipt.headers',
    'record.request_hash',
    'record.response_hash',
    'record.reanchored.*',
    ...erased,
    // In a bundle without block, which nothing binds: bundle.test.ts.
    'no_block.reason',
    'no_block.transaction',
    // Which nothing binds either: bundle-source.test.ts.
    'source.gateway',
    'source.operator',
    'source.releases',
    // Which is tied to the receipt: provider-evidence.test.ts.
    'provider_evidence.document',
    'provider_evidence.sha256',
    // What only the caller has: kept-parts.test.ts.
    'events.*.data',
    'events.*.event',
    'idempotent',
    'unanswered.*.n',
    'unanswered.*.notary',
    'unanswered.*.times',
  ]
  expect([...new Set(schemaFields())].filter((field) => !covered.has(field)).toSorted()).toEqual(
    elsewhere.toSorted(),
  )
})

/** All places of the bundle that a row is about. */
function placesOf(field: string): readonly JsonPath[] {
  return placesIn(bundle).filter((path) => patternOf(path) === field)
}

/** The row for a place. Request and response are free in form: each is one field. */
function fieldOf(path: JsonPath): string {
  const field = patternOf(path)
  return /^record\.(request|response)\b/.exec(field)?.[0] ?? field
}

function patternOf(path: JsonPath): string {
  return path.map((key) => (typeof key === 'number' ? '*' : key)).join('.')
}

/** Leaves of bundle.schema.json, as the table writes them. */
function schemaFields(): readonly string[] {
  const url = new URL('../../../attestation/evidence/bundle.schema.json', import.meta.url)
  const schema = JSON.parse(readFileSync(url, 'utf8'))
  const walk = (node: Record<string, Json>, field: string): readonly string[] => {
    const { $ref, properties, items, anyOf } = node
    if (typeof $ref === 'string') return walk(schema.$defs[$ref.slice('#/$defs/'.length)], field)
    if (isJsonArray(anyOf)) return anyOf.flatMap((one) => walk(objectOf(one), field))
    if (isJsonObject(properties))
      return Object.entries(properties).flatMap(([name, child]) =>
        walk(objectOf(child), field === '' ? name : `${field}.${name}`),
      )
    if (isJsonObject(items)) return walk(items, `${field}.*`)
    return node.type === 'null' ? [] : [field]
  }
  return walk(schema, '')
}

function objectOf(value: Json): JsonObject {
  if (!isJsonObject(value)) throw new Error('expected an object')
  return value
}

function isContainer(value: Json): boolean {
  return typeof value === 'object' && value !== null
}

function add(value: Json): Json {
  return Number(value) + 1
}

function grow(value: Json): Json {
  return { ...objectOf(value), added: true }
}

/** Another text of the same form, with another last digit. The last byte of a signature is v. */
function flip(value: Json): Json {
  const text = String(value)
  return text.length === 132
    ? otherLastDigit(text.slice(0, -2)) + text.slice(-2)
    : otherLastDigit(text)
}

/** In base64, a character of the document's last bytes: its signature. */
function flipSignature(value: Json): Json {
  const text = String(value)
  return `${text.slice(0, -20)}${text.at(-20) === 'A' ? 'B' : 'A'}${text.slice(-19)}`
}

function otherKey(): Json {
  return new Wallet(`0x${'17'.repeat(32)}`).signingKey.publicKey
}

/** The same head, anchored again: another nonce, so another hash. */
function otherTransaction(): Json {
  return signAnchor(bundle.record.log, { nonce: 8 })
}
