import { decodeBase64, encodeHex, sha256 } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { BUNDLE_FORMAT } from '#attestation/evidence/bundle-forms.ts'
import { checkProvider, judgedTimeOf } from '#attestation/evidence/check-provider.ts'
import { attempt } from '#attestation/finding.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { memberAt } from '#attestation/json/value.ts'
import { ownMembers } from '#attestation/own-members.ts'
import {
  type LookedUpBlock,
  PROVIDER_EVIDENCE_BYTES_MAX,
} from '#attestation/providers/evidence/evidence-document.ts'
import { judgeByPolicies } from '#attestation/providers/evidence/judge-by-policies.ts'
import { type RecordWeights, weightsOf } from '#attestation/providers/evidence/model-weights.ts'
import type { ProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import type { ProviderJudgement } from '#attestation/providers/evidence/verify-provider-evidence.ts'
import { type ProviderCheck, requireChecks } from '#attestation/providers/provider-checks.ts'
import { ProviderEvidenceError } from '#attestation/providers/provider-error.ts'
import type { Receipt } from '#attestation/receipt.ts'
import {
  DEVELOPMENT_ROOTS,
  describeProvider,
  PROVIDER_NOT_SHOWN,
} from '#attestation/report/describe-provider.ts'
import { printable } from '#attestation/report/printable.ts'
import { AffidavitError } from '#client/errors.ts'
import { type ListedProvider, readListedProviders } from '#client/listed-providers.ts'
import { lookUpNonceBlock } from '#client/nonce-block.ts'
import { createRpc, type Rpc } from '#client/rpc.ts'
import { throwUnreached } from './evidence/chain-facts.ts'
import { readEvidenceFile } from './evidence/read-evidence.ts'
import { CliError, convertFault, EXIT_CODES } from './faults.ts'
import { isUrl, readSource } from './files.ts'
import { openPolicy, requirePart } from './policy-file.ts'
import { formatChecks, printableJson } from './printable.ts'

export type ProviderOptions = {
  readonly policy?: string
  readonly at?: Date
  readonly rpc?: string
  readonly provider?: string
  readonly json?: boolean
}

type FoundEvidence = {
  /** The gateway's name for the provider. Null if the source has no name. */
  readonly name: string | null
  readonly bytes: Uint8Array
  /** Null if the evidence is not from a gateway's list. */
  readonly origin: string | null
  /** The unverified receipt from the evidence of a call. Null if the source is another. */
  readonly receipt: Receipt | null
}

type JudgedProvider = ProviderJudgement &
  Pick<FoundEvidence, 'name'> & {
    /** The first failed or open check that the policy needs. Null if the evidence is accepted. */
    readonly refusal: { readonly code: string; readonly message: string } | null
    readonly isFailed: boolean
    readonly weights: RecordWeights | null
  }

/**
 * `isOk`: without a policy, no check failed; with a policy, all evidence is accepted. Throws
 * CliError for a source without evidence.
 */
export async function reportProviders(
  source: string,
  given: ProviderOptions,
): Promise<{ readonly output: string; readonly isOk: boolean }> {
  const options = ownMembers(given)
  const { policy: file } = options
  const policies =
    file === undefined ? null : requirePart((await openPolicy(file)).providers, 'providers', file)
  const found = await findEvidence(source, options.provider ?? null, policies)
  const judged: JudgedProvider[] = []
  const rpc = options.rpc === undefined ? null : createRpc({ url: options.rpc })
  for (const one of found)
    judged.push(await judgeFound(one, { policies, rpc, at: options.at ?? null }))
  const isOk = judged.every(
    ({ refusal, isFailed }) => !isFailed && (policies === null || refusal === null),
  )
  const output = options.json
    ? `${printableJson({ ok: isOk, providers: judged.map((one) => jsonOf(one, policies !== null)) })}\n`
    : judged.map((one) => formatProvider(one, policies !== null)).join('\n')
  return { output, isOk }
}

async function judgeFound(
  { name, bytes, origin, receipt }: FoundEvidence,
  {
    policies,
    rpc,
    at: given,
  }: {
    readonly policies: readonly ProviderPolicy[] | null
    readonly rpc: Rpc | null
    readonly at: Date | null
  },
): Promise<JudgedProvider> {
  const at = given ?? (receipt && judgedTimeOf(receipt)) ?? new Date()
  const judged = await judgeByPolicies(bytes, policies, at, rpc && (await lookUp(rpc, bytes)))
  const { facts } = judged
  if (origin !== null && facts !== null && facts.origin !== origin)
    throw new CliError(
      `the gateway lists evidence of ${printable(facts.origin)} for ${printable(origin)}`,
    )
  const checks = [...(receipt === null ? [] : [checkCall(receipt, judged)]), ...judged.checks]
  const isFailed = checks.some(({ outcome }) => outcome === 'failed')
  const model = receipt && (receipt.model.returned ?? receipt.model.requested)
  const weights = facts === null || model === null ? null : weightsOf(facts.model, model)
  return { facts, checks, name, refusal: refusalOf(checks), isFailed, weights }
}

/** Throws ChainUnreached. */
async function lookUp(rpc: Rpc, bytes: Uint8Array): Promise<LookedUpBlock | null> {
  return await lookUpNonceBlock(rpc, bytes).catch(throwUnreached)
}

/** Checks that a bundle's evidence is for the origin and the key that its receipt names. */
function checkCall(receipt: Receipt, judged: ProviderJudgement): ProviderCheck {
  const [made] = checkProvider(receipt, judged, { hasPolicy: false, missing: null })
  return { ...made, code: made.outcome === 'failed' ? 'other_call' : null, isWaived: false }
}

function refusalOf(checks: readonly ProviderCheck[]): JudgedProvider['refusal'] {
  try {
    requireChecks(checks)
    return null
  } catch (fault) {
    if (!(fault instanceof ProviderEvidenceError)) throw fault
    return { code: fault.code, message: fault.message }
  }
}

/** Bytes: the evidence in base64, and a long completion. */
const FILE_BYTES_MAX = 64 * 1024 * 1024
const LIST_BYTES_MAX = 4 * 1024 * 1024
/** Documents that are read from one gateway: all are kept in memory, each of up to 4 MiB. */
const DOCUMENTS_MAX = 64
async function findEvidence(
  source: string,
  provider: string | null,
  policies: readonly ProviderPolicy[] | null,
): Promise<readonly FoundEvidence[]> {
  if (isUrl(source) && !new URL(source).pathname.includes(EVIDENCE_PATH))
    return await fetchListed(source, provider, policies)
  if (provider !== null)
    throw new CliError('expected --provider with the URL of a gateway', EXIT_CODES.usage)
  const bytes = await readSource(source, { bytesMax: FILE_BYTES_MAX })
  return isUrl(source) ? [checkedDigest(source, bytes)] : evidenceIn(bytes)
}

const EVIDENCE_PATH = '/v1/providers/evidence/'

/** A URL that ends with a digest must return the document with that digest. */
function checkedDigest(url: string, bytes: Uint8Array): FoundEvidence {
  const digest = new URL(url).pathname.split(EVIDENCE_PATH).at(-1) ?? ''
  if (encodeHex(sha256(bytes)) !== digest)
    throw new CliError('the gateway gave another document than that of the digest')
  return { name: null, bytes, origin: null, receipt: null }
}

/** The file is a document, or evidence: then each document of it with each key that it is for. */
function evidenceIn(bytes: Uint8Array): readonly FoundEvidence[] {
  const json = attempt(() => parseExactJson(bytes))
  if ('value' in json && memberAt(json.value, 'format') !== BUNDLE_FORMAT)
    return [{ name: null, bytes, origin: null, receipt: null }]
  const calls = readEvidenceFile(bytes, 'the file', EXIT_CODES.usage)
  const found = new Map<string, FoundEvidence>()
  for (const { provider_evidence: part, record } of calls) {
    const { receipt } = record
    const key = `${part?.sha256} ${receipt.provider.origin} ${receipt.provider.tls?.spki_sha256}`
    if (part?.document === undefined || found.has(key)) continue
    const bytes = decodeBase64(part.document)
    found.set(key, { name: receipt.provider.name, bytes, origin: null, receipt })
  }
  if (found.size === 0)
    throw new CliError('the evidence has no evidence of its provider', EXIT_CODES.unavailable)
  return [...found.values()]
}

/** A null `provider` or `policies` selects all evidence. */
async function fetchListed(
  base: string,
  provider: string | null,
  policies: readonly ProviderPolicy[] | null,
): Promise<readonly FoundEvidence[]> {
  const root = base.replace(/\/+$/, '').replace(/\/v1$/, '')
  const list = parseList(await readSource(`${root}/v1/providers`, { bytesMax: LIST_BYTES_MAX }))
  const wanted = list
    .filter((one) => provider === null || one.provider === provider)
    .filter(({ origin }) => policies?.some(({ origins }) => origins.includes(origin)) ?? true)
  const withEvidence = wanted.flatMap(({ digest, ...one }) =>
    digest === null ? [] : [{ ...one, digest }],
  )
  if (withEvidence.length === 0)
    throw new CliError(
      wanted.length === 0
        ? `the gateway lists no such provider: ${printable(list.map((one) => one.provider).join(', '))}`
        : 'the gateway has no evidence of this provider',
      EXIT_CODES.unavailable,
    )
  if (withEvidence.length > DOCUMENTS_MAX)
    throw new CliError(
      `the gateway lists ${withEvidence.length} evidences, more than ${DOCUMENTS_MAX}: give --provider`,
      EXIT_CODES.unavailable,
    )
  const found: FoundEvidence[] = []
  for (const { provider: name, origin, digest } of withEvidence) {
    const url = `${root}${EVIDENCE_PATH}${digest}`
    const bytes = await readSource(url, { bytesMax: PROVIDER_EVIDENCE_BYTES_MAX })
    found.push({ ...checkedDigest(url, bytes), name, origin })
  }
  return found
}

function parseList(bytes: Uint8Array): readonly ListedProvider[] {
  const refuse = () => new CliError('expected the list of providers of a gateway')
  const json = convertFault(() => parseExactJson(bytes), FormatError, refuse)
  return convertFault(() => readListedProviders(json), AffidavitError, refuse)
}

function headline({ refusal, isFailed, checks, facts }: JudgedProvider, isUnderPolicy: boolean) {
  if (isUnderPolicy && refusal === null)
    return (
      'ATTESTED: the evidence passes your ' +
      `policy${facts?.hasReplacedRoots ? `, under ${DEVELOPMENT_ROOTS}` : ''}` +
      `${facts?.blockTimeMs === null ? '; its age is not checked' : ''}.`
    )
  if (isUnderPolicy && refusal !== null)
    return `REFUSED  ${refusal.code}: ${printable(refusal.message)}`
  const failed = checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
  return isFailed
    ? `REFUSED, and not appraised under a policy: failed at ${printable(failed.join(', '))}.`
    : 'NOT APPRAISED under a policy: any code could have made this. Give --policy.'
}

function formatProvider(judged: JudgedProvider, isUnderPolicy: boolean): string {
  const { name, facts, checks, weights } = judged
  const isProved = isUnderPolicy && judged.refusal === null
  const lines = facts === null ? [] : describeProvider(facts, weights)
  const width = Math.max(0, ...lines.map(([label]) => label.length))
  return [
    ...(name === null ? [] : [printable(name)]),
    headline(judged, isUnderPolicy),
    '',
    isProved ? 'What is proved' : 'What the evidence says, which nothing here proves',
    ...lines.map(([label, text]) => `  ${label.padEnd(width)}  ${printable(text)}`),
    '',
    'What it does not show',
    ...PROVIDER_NOT_SHOWN.map((line) => `  - ${line}`),
    '',
    `Checks\n${formatChecks(checks)}`,
  ].join('\n')
}

function jsonOf(judged: JudgedProvider, isUnderPolicy: boolean): object {
  const { name, refusal, checks, facts, weights } = judged
  return {
    name,
    accepted: isUnderPolicy && refusal === null,
    code: isUnderPolicy ? (refusal?.code ?? null) : null,
    message: isUnderPolicy ? (refusal?.message ?? null) : null,
    facts: facts && providerFactsJson(facts),
    weights,
    checks,
    not_shown: PROVIDER_NOT_SHOWN,
  }
}

/** Bytes are written as hex. */
export function providerFactsJson<Facts extends NonNullable<ProviderJudgement['facts']>>(
  facts: Facts,
): object {
  const { block } = facts
  return { ...facts, block: block && { ...block, hash: `0x${encodeHex(block.hash)}` } }
}
