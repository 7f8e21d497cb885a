import { createHash } from 'node:crypto'
import { encodeBase64, encodeHex, equalBytes } from '#attestation/bytes.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import { attempt } from '#attestation/finding.ts'
import type { Json } from '#attestation/json/value.ts'
import { AttestationError } from '#attestation/nitro/attestation-error.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { verifyAttestation } from '#attestation/nitro/verify-attestation.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  policyFor,
} from '../../attestation/evidence/build-evidence.ts'
import { entry, listAt } from '../../support/nitro-builder/crl-builder.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import { buildDocument, standardChain } from '../../support/nitro-builder/document-builder.ts'
import { acceptances, refusals } from '../../support/nitro-cases/all-cases.ts'
import { type Acceptance, policyOf, type Refusal, timeOf } from '../../support/nitro-cases/case.ts'
import { OPERATOR_KEY } from '../../support/release-stage.ts'
import {
  type Content,
  type Draft,
  type DraftDemands,
  EXPECTED,
  invalid,
  notAccepted,
  pemOf,
  ROOT,
  verified,
} from './draft.ts'
import { listOf } from './release-cases.ts'

/*
 * The documents of test/support/nitro-cases: alone, for `attestation`, and in a bundle that is
 * correct otherwise, for `verify`.
 */

/**
 * Cases of documents. `skipped`: names of the cases that the command line cannot express, each with
 * the reason.
 */
export async function makeDocumentCases(): Promise<{
  readonly drafts: readonly Draft[]
  readonly skipped: readonly string[]
}> {
  const skipped: string[] = []
  const drafts: Draft[] = []
  const inBundles = new Set<string>()
  const taken = new Map<string, number>()
  for (const one of [...acceptances, ...refusals]) {
    const name =
      'code' in one ? `${one.code}/${slugOf(one.name)}` : `rule-${one.rule}/${slugOf(one.name)}`
    const demands = demandsOf(one)
    const group = 'code' in one ? one.code : `rule ${one.rule}`
    const count = taken.get(group) ?? 0
    taken.set(group, count + 1)
    if (count >= CASES_MAX) continue
    if (typeof demands === 'string') skipped.push(`${name}: ${demands}`)
    else drafts.push(documentDraft(name, one, demands))
    if ('code' in one && !inBundles.has(one.code) && (await isRefusedInBundle(one))) {
      inBundles.add(one.code)
      drafts.push(await bundleDraft(one))
    }
  }
  return { drafts: [...drafts, ...listed], skipped }
}

/** Most cases of one code or rule: each is a file of 4 kB. test/support/nitro-cases has all. */
const CASES_MAX = 4

function documentDraft(name: string, one: Refusal | Acceptance, demands: DraftDemands): Draft {
  const isRefused = 'code' in one
  return {
    name: `document/${isRefused ? 'refused' : 'accepted'}/${name}`,
    about: isRefused ? `Refused: ${one.name}.` : `At the edge of rule ${one.rule}: ${one.name}.`,
    kind: 'document',
    source: { bytes: one.document, extension: 'bin' },
    demands,
    expect: isRefused ? invalid([one.code]) : verified(),
  }
}

/**
 * The demands that give the command line this policy; the reason when there are no such demands.
 */
function demandsOf(one: Refusal | Acceptance): DraftDemands | string {
  const policy = policyOf(one)
  const atMs = timeOf(one).getTime()
  const { measurements, releases, nonce, maxAgeMs, mode } = policy
  if (policy.futureSkewMs !== undefined) return 'another future skew than the default'
  if (policy.revoked !== undefined || policy.revocationLists !== undefined)
    return 'revocation by pairs or read lists: the cases with CRLs stand for it'
  if (mode !== 'historical' && atMs % 1000 !== 0) return 'a time that is no whole second'
  if (measurements !== 'any' && measurements.length > 1) return 'several sets of measurements'
  if (measurements !== 'any' && measurements.some((set) => set.size === 0)) return 'an empty set'
  if (measurements !== 'any' && measurements.length > 0 && releases !== undefined)
    return 'sets beside releases'
  if (releases !== undefined && releases.length === 0) return 'an empty list of releases'
  const roots = (policy.roots ?? []).map((sha256) => rootOf(one, sha256))
  if (roots.includes(null)) return 'a root whose certificate is not at hand'
  return {
    roots: roots.flatMap((root) => root ?? []),
    ...(measurements === 'any' ? { any_measurement: true as const } : {}),
    ...(measurements !== 'any' && measurements[0] !== undefined
      ? {
          pcrs: Object.fromEntries(
            [...measurements[0]].map(([index, value]) => [String(index), encodeHex(value)]),
          ),
        }
      : {}),
    ...(releases === undefined
      ? {}
      : { releases: releases.map((release) => listOf(release)), release_keys: [OPERATOR_KEY] }),
    ...(policy.allowDebug ? { allow_debug: true as const } : {}),
    ...(nonce ? { nonce: encodeHex(nonce) } : {}),
    ...(maxAgeMs === undefined ? {} : { max_age: maxAgeMs / 1000 }),
    ...(mode === 'historical' ? { historical: true as const } : { at: atMs / 1000 }),
  }
}

/** The trusted root: the standard chain's root, or a root from the document. */
function rootOf({ document }: Refusal | Acceptance, sha256: Uint8Array): Content | null {
  if (equalBytes(sha256, standardChain.rootSha256)) return ROOT
  const payload = attempt(() => decodeAttestationPayload(document))
  const known = 'fault' in payload ? [] : payload.value.cabundle
  const der = known.find((one) =>
    equalBytes(new Uint8Array(createHash('sha256').update(one).digest()), sha256),
  )
  return der === undefined ? null : pemOf(der)
}

/** Whether the document breaks the same rule at its own time, with the root as the only demand. */
async function isRefusedInBundle({ document, code, policy = {} }: Refusal): Promise<boolean> {
  // The form of the bundle already refuses longer documents and empty ones.
  if (policy.roots !== undefined || document.length === 0 || document.length > 16_384) return false
  try {
    await verifyAttestation(
      document,
      { measurements: 'any', mode: 'historical', roots: [standardChain.rootSha256] },
      new Date(0),
    )
    return false
  } catch (fault) {
    return fault instanceof AttestationError && fault.code === code
  }
}

/**
 * A bundle that is correct except for its document. The other checks that fail depend on how much
 * of the document can be read, so our own verifier decides them.
 */
async function bundleDraft({ code, name, document }: Refusal): Promise<Draft> {
  const { bundle } = buildEvidence({
    neighbours: [0, 0],
    stored: { attestation: encodeBase64(document) },
  })
  const report = await verifyBundle(bundle, policyFor(BOOT_CONFIGURATION))
  const named = (outcome: string) =>
    report.checks.filter((check) => check.outcome === outcome).map((check) => check.name)
  const found = report.checks.find((check) => check.name === 'attestation document')
  if (found?.outcome !== 'failed' || !found.detail.startsWith(`${code}: `))
    throw new Error(`expected ${code} of ${name}, got ${found?.detail}`)
  return {
    name: `bundle/attestation-document/${code.replaceAll('_', '-')}`,
    about: `All but the attestation document is right, which is refused with ${code}: ${name}.`,
    kind: 'bundle',
    source: { json: bundle as unknown as Json },
    demands: EXPECTED,
    expect: (OF_POLICY.has(code) ? notAccepted : invalid)(named('failed'), ...named('not checked')),
  }
}

/** A document refused with one of these codes can be genuine. */
const OF_POLICY: ReadonlySet<string> = new Set(['root_untrusted', 'debug_mode'])

const HOUR_MS = 3_600_000
const whole = buildDocument()
const at = MADE_AT.getTime() / 1000
const IN_FORCE = { any_measurement: true, roots: [ROOT], at } as const

function listedDraft(
  name: string,
  list: Uint8Array,
  expect: Draft['expect'],
  about: string,
): Draft {
  return {
    name: `document/crl/${name}`,
    about,
    kind: 'document',
    source: { bytes: whole, extension: 'bin' },
    demands: { ...IN_FORCE, crls: [{ bytes: list, extension: 'crl' }] },
    expect,
  }
}

const after = (ms: number) => new Date(MADE_AT.getTime() + ms)
const listed: readonly Draft[] = [
  listedDraft(
    'nothing-revoked',
    listAt(1),
    verified(),
    'A list of the chain that names no certificate of the chain.',
  ),
  listedDraft(
    'another-serial',
    listAt(1, { revoked: [entry(0x7001)] }),
    verified(),
    'A list that names a serial which this issuer did not give.',
  ),
  listedDraft(
    'revoked',
    listAt(1, { revoked: [entry(0x7002)] }),
    invalid(['certificate_revoked']),
    'A list that names the certificate which its issuer signed.',
  ),
  listedDraft(
    'ended',
    listAt(1, { thisUpdate: after(-9 * HOUR_MS), nextUpdate: after(-HOUR_MS) }),
    invalid(['revocation_list_expired']),
    'A list whose next update is past.',
  ),
]

function slugOf(name: string): string {
  return name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
}
