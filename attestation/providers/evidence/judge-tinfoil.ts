import { decodeHex, encodeHex } from '../../bytes.ts'
import { FormatError } from '../../errors.ts'
import { formsOf } from '../../json/forms.ts'
import { memberAt } from '../../json/value.ts'
import { blockedBy, established, notGiven, type ProviderCheck, waived } from '../provider-checks.ts'
import { type SigstoreFacts, verifySigstoreBundle } from '../sigstore/verify-sigstore-bundle.ts'
import { refuseEvidence } from './evidence-codes.ts'
import { findAnswer } from './find-answer.ts'
import { NO_SNP_TERMS, NO_TDX_TERMS, onPlatforms } from './hardware-terms.ts'
import { judgeGpus } from './judge-gpus.ts'
import { type AcceptedCode, judgeHardware } from './judge-hardware.ts'
import {
  findOpen,
  hardwareFactsOf,
  type Judging,
  type KindFacts,
  NO_KIND_FACTS,
  type ProviderCode,
  type ProviderModel,
  UNKNOWN_WEIGHTS,
} from './judging.ts'
import {
  type KeptCollateral,
  readKeptCollateral,
  readTinfoilCollateral,
} from './kept-collateral.ts'
import { checkWeights, weightsOfBuild } from './model-weights.ts'
import type { CodeTerms } from './provider-policy.ts'
import { parseTinfoilDocument, type TinfoilDocument } from './tinfoil-document.ts'

/** Judges a document of Tinfoil: version 2 or 3, TDX or SEV-SNP, with the signed build. */
export async function judgeTinfoil(judging: Judging): Promise<KindFacts> {
  const { evidence, terms, checks } = judging
  const document = await checks.make('answer', async () => {
    const read = await parseTinfoilDocument(findAnswer(evidence))
    return established(read, `${read.hardware.tee}, version ${read.nonce === null ? 2 : 3}`)
  })
  await checks.make('challenge', () => {
    if (document === null) return blockedBy('answer')
    return checkChallenge(document, judging)
  })
  const collateral = await checks.make('collateral', () => {
    if (document === null) return blockedBy('answer')
    const kept = readKeptCollateral(evidence.collateral)
    const inside = document.collateral
    return established(inside === null ? kept : readTinfoilCollateral(inside, kept))
  })
  const build = await judgeBuild(judging, collateral)
  const accepted = acceptedCode(judging, build.facts)
  const judged = await checks.make('hardware', async () => {
    if (document === null) return blockedBy('answer')
    if (collateral === null) return blockedBy('collateral')
    const { tee } = document.hardware
    if ((tee === 'TDX' ? terms.tdx : terms.snp) === null)
      throw refuseEvidence('tee_not_accepted', `expected other hardware than ${tee}`)
    if (tee === 'SEV-SNP' && collateral.snp === null)
      return notGiven("AMD's certificates (VCEK or VLEK, and cert_chain) were")
    const found = await judgeHardware(document.hardware, {
      ...judging,
      ...terms,
      tdx: terms.tdx ?? NO_TDX_TERMS,
      snp: terms.snp ?? NO_SNP_TERMS,
      code: accepted ?? { tdx: 'any', snp: 'any' },
      collateral,
    })
    return established(found, tee)
  })
  judging.add(document?.hardware.tee ?? 'hardware', judged?.checks ?? [])
  const keys = await checks.make('key binding', () => {
    if (document === null) return blockedBy('answer')
    const facts = judged?.facts
    if (!facts) return blockedBy('hardware')
    const found = document.keysIn(facts.reportData)
    return established(found, found.tls)
  })
  const isMeasured = judged?.facts && accepted && !findOpen(judged.checks, MEASUREMENTS)
  const code = isMeasured ? codeOf(build.facts) : null
  await checks.make('code', () => {
    if (build.facts !== null && accepted === null)
      throw refuseEvidence('build_malformed', 'expected a signed build that names measurements')
    if (terms.code === null) return notGiven('a policy was')
    if (accepted === null) return blockedBy('Sigstore')
    return code === null ? blockedBy('measurements') : established(code, sayCode(code))
  })
  const gpus = await judgeGpus(judging, {
    read: () => document?.readDevices() ?? [],
    tie: 'the report data has their evidence',
    endsAtMs: judged?.facts?.endsAtMs ?? null,
  })
  const isAnyFirmware = document?.hardware.tee === 'TDX' && terms.tdx?.platforms === 'any'
  const model = build.facts === null ? UNPROVEN : modelOf(build.facts, terms.code, isAnyFirmware)
  await checkWeights(judging, code && model)
  if (!judged?.facts) return NO_KIND_FACTS
  return {
    ...hardwareFactsOf(judged.facts, !findOpen(judged.checks, DEBUG)),
    tlsKeys: keys ? [{ spkiSha256: keys.tls, domain: null }] : [],
    encryptionKey: keys?.hpke ?? null,
    code,
    model: code ? model : UNPROVEN,
    ...gpus,
  }
}

/** Names of checks: the first of TDX, the second of SEV-SNP. */
const MEASUREMENTS = ['measurements', 'measurement']
const DEBUG = ['TD attributes', 'debug and migration off']

const UNPROVEN: ProviderModel = { ...UNKNOWN_WEIGHTS, reason: 'no signed build was matched' }

function checkChallenge({ nonce }: TinfoilDocument, { evidence, terms }: Judging) {
  if (nonce === null && terms.acceptsNoNonce)
    return waived('version 2 has no nonce: TLS alone is new')
  if (nonce === null) return { notChecked: 'version 2 has no nonce', isWaived: false }
  if (nonce !== encodeHex(evidence.nonce))
    throw refuseEvidence('challenge_mismatch', 'expected an answer for the nonce')
  return established(nonce)
}

type Build = { readonly facts: SigstoreFacts | null; readonly checks: readonly ProviderCheck[] }

/** A policy that names measurements needs no signed build. */
async function judgeBuild(
  { terms, add }: Judging,
  collateral: KeptCollateral | null,
): Promise<Build> {
  const { code, roots } = terms
  if (code?.by === 'measurements' || collateral === null) return { facts: null, checks: [] }
  if (collateral.sigstore === null && code === null) return { facts: null, checks: [] }
  const identity = code?.by === 'release' ? code.identity : null
  const judged = await verifySigstoreBundle(collateral.sigstore ?? {}, {
    identity,
    trust: roots.sigstore,
  })
  add('Sigstore', judged.checks)
  return judged
}

const PREDICATE = 'https://tinfoil.sh/predicate/snp-tdx-multiplatform/v1'
const RTMR3_UNUSED = new Uint8Array(48)
const { hexOf } = formsOf('build_malformed')

/** Returns null if neither the policy nor a signed build names measurements. */
function acceptedCode({ terms }: Judging, build: SigstoreFacts | null): AcceptedCode | null {
  if (terms.code?.by === 'measurements') return terms.code
  if (build === null || build.predicateType !== PREDICATE) return null
  const measured = (...path: readonly string[]) =>
    decodeHex(hexOf(memberAt(build.predicate, ...path), path.join('.'), 48))
  try {
    const kernel = {
      rtmr1: measured('tdx_measurement', 'rtmr1'),
      rtmr2: measured('tdx_measurement', 'rtmr2'),
      rtmr3: RTMR3_UNUSED,
    }
    return {
      tdx: onPlatforms([kernel], terms.tdx?.platforms ?? 'any'),
      snp: [measured('snp_measurement')],
    }
  } catch (fault) {
    if (fault instanceof FormatError) return null
    throw fault
  }
}

/**
 * Returns the weights as `provider_claimed` unless the policy restricts build and firmware. Anyone
 * can sign a build with any configuration. Any firmware can state the measurements of any build.
 */
function modelOf(
  { predicate, repository }: SigstoreFacts,
  code: CodeTerms | null,
  isAnyFirmware: boolean,
): ProviderModel {
  const found = weightsOfBuild(predicate)
  if (found.weights === 'unknown' || (code !== null && !isAnyFirmware)) return found
  const reason =
    code === null
      ? `a build of ${repository} names weights, and no policy says that it may`
      : 'the policy accepts any firmware, which can state the measurements of any build'
  return { ...UNKNOWN_WEIGHTS, weights: 'provider_claimed', reason }
}

function codeOf(build: SigstoreFacts | null): ProviderCode {
  if (build === null) return { by: 'measurements', repository: null, release: null, digest: null }
  const { repository, ref, digest } = build
  return { by: 'release', repository, release: ref.replace(/^refs\/(?:tags|heads)\//, ''), digest }
}

function sayCode({ by, repository, release, digest }: ProviderCode): string {
  return by === 'release'
    ? `${repository} ${release}, artifact ${digest}`
    : 'the measurements that the policy names'
}
