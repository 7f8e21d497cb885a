import type { PointRecovery } from '../account.ts'
import { decodeBase64, encodeHex, equalBytes } from '../bytes.ts'
import { ProofError } from '../errors.ts'
import { attempt, type Check, check, need, reasonOf } from '../finding.ts'
import { formsOf } from '../json/forms.ts'
import type { Json } from '../json/value.ts'
import { decodeAttestationPayload } from '../nitro/document.ts'
import { hasOwnMembersAlone, ownMembers } from '../own-members.ts'
import type { Release } from '../release/release.ts'
import { digestBootConfiguration } from './boot-configuration.ts'
import { type BootFacts, parseBootConfiguration } from './boot-facts.ts'
import {
  type BootHead,
  type BootStatement,
  bootStatementUserData,
  parseBootHeads,
  verifyBootHeads,
} from './boot-statement.ts'
import { BUNDLE_DOCUMENT_BYTES_MAX, base64FormOf } from './bundle-forms.ts'
import {
  checkCreatedAt,
  checkDocumentKey,
  checkExpectedConfiguration,
  checkExpectedMeasurements,
  describeDocument,
  findExpectedCode,
  verifyDocument,
} from './document-checks.ts'
import { type BundleContext, type BundlePolicy, readContext, readPolicy } from './policy.ts'
import { type CheckTable, type Judgement, judgeChecks, orderChecks, refuseForm } from './verdict.ts'
import type { AttestedLog } from './verify-head-attestation.ts'

/** What a boot statement is checked for, in the order of the report. */
export type BootStatementCheckName = keyof typeof BOOT_STATEMENT_CHECKS

/** Every check, and when `verified` needs it. */
const BOOT_STATEMENT_CHECKS = {
  /**
   * The statement and the log's boot configuration have their form. When it fails nothing else is
   * checked.
   */
  format: 'always',
  /** The document is genuine: trusted root, chain, signature; at the time it was made. */
  'attestation document': 'always',
  /** The document names the notary's key. */
  'attestation key': 'always',
  /** Each head was signed by its notary, for the chain and contract of the configuration. */
  'head signatures': 'always',
  /** The document is over exactly these heads, by this log, under this boot configuration. */
  statement: 'always',
  /** The second in which the document was made. */
  created_at: 'always',
  /** The document, when it is genuine, has the measurements that the caller expects. */
  measurements: 'always',
  /** The boot configuration is one that the caller expects. */
  'expected configuration': 'always',
} as const satisfies CheckTable<string>

/** Outcome of verifyBootStatement. */
export type BootStatementReport = Judgement<BootStatementCheckName> & {
  readonly checks: readonly Check<BootStatementCheckName>[]
  /** What the statement says; null when it is invalid. */
  readonly facts: BootStatementFacts | null
}

/** What a boot statement that is not invalid says, as far as the checks of its report passed. */
export type BootStatementFacts = {
  /** Of the enclave that was shown the heads. */
  readonly notary: string
  readonly heads: readonly BootHead[]
  /** Unix milliseconds, the security module's clock. */
  readonly timestampMs: number
  /** All PCR values of the document, 48 bytes each by index. */
  readonly measurements: ReadonlyMap<number, Uint8Array>
  /** The release of the policy that those are of; null when none was expected, or a set matched. */
  readonly release: Release | null
}

/**
 * Checks what a boot statement shows, with no network and no clock. `json` and `log` are
 * attacker-controlled: read their text with parseExactJson. Never rejects for anything in them.
 * Rejects with PolicyError, before anything is checked, when policy or context is not of its form;
 * `recover` as recoverPublicKey has it.
 *
 * When verified, an enclave of the expected code and configuration, which holds the notary's key,
 * was shown these heads before its log had a leaf, and each was signed by its notary by then.
 *
 * Does NOT prove: that these are all logs that there were, or their newest heads (the gateway chose
 * what to show); that the other notaries are enclaves; that the logs are as they were (prove that
 * with verifyConsistency).
 */
export async function verifyBootStatement(
  json: Json,
  log: AttestedLog,
  demanded: BundlePolicy,
  given: BundleContext & { readonly recover?: PointRecovery } = {},
): Promise<BootStatementReport> {
  const policy = readPolicy(demanded)
  const { recover, ...context } = readOwn(given)
  const { attestations } = readContext(context)
  const parsed = attempt(() => ({
    statement: parseBootStatement(json),
    domain: domainOf(parseBootConfiguration(log.bootConfiguration)),
  }))
  if ('fault' in parsed) {
    const detail = reasonOf(parsed.fault)
    return {
      ...refuseForm(BOOT_STATEMENT_CHECKS, { subject: 'the boot statement', detail }),
      facts: null,
    }
  }
  const { statement, domain } = parsed.value
  const { heads, created_at: createdAt } = statement
  const { notary } = log
  const configuration = digestBootConfiguration(log.bootConfiguration)
  const bytes = attempt(() => decodeBase64(statement.document))
  const document = attempt(() => decodeAttestationPayload(need(bytes)))
  const facts = await verifyDocument(bytes, policy, attestations)
  const made: readonly Check<BootStatementCheckName>[] = [
    { name: 'format', outcome: 'passed', detail: 'version 1' },
    check('attestation document', () => describeDocument(need(facts))),
    check('attestation key', () => checkDocumentKey(need(document), notary)),
    check('head signatures', () => {
      verifyBootHeads(heads, domain, recover)
      return `${heads.length} heads, each signed by its notary`
    }),
    check('statement', () => {
      const { userData, nonce } = need(document)
      const expected = bootStatementUserData({ configuration, notary, heads })
      if (userData === null || nonce !== null || !equalBytes(userData, expected))
        throw new ProofError(
          'wrong_statement',
          "expected the document's user_data to be of these heads, by this log under this boot configuration, and no nonce",
        )
      return `${heads.length} heads, configuration ${encodeHex(configuration)}`
    }),
    check('created_at', () => checkCreatedAt(need(document), createdAt)),
    check('measurements', () => checkExpectedMeasurements(document, { facts, policy })),
    check('expected configuration', () =>
      checkExpectedConfiguration(configuration, { document, policy }),
    ),
  ]
  const checks = orderChecks(made, BOOT_STATEMENT_CHECKS)
  const judgement = judgeChecks(checks, { table: BOOT_STATEMENT_CHECKS, hasChain: false })
  if (judgement.verdict === 'invalid') return { ...judgement, checks, facts: null }
  const { timestampMs, pcrs: measurements } = need(document)
  const release = findExpectedCode(need(document), policy)?.release ?? null
  return { ...judgement, checks, facts: { notary, heads, timestampMs, measurements, release } }
}

/** Throws PolicyError, as readContext of the whole would. */
function readOwn<Given extends BundleContext>(given: Given): Given {
  if (!hasOwnMembersAlone(given)) readContext(given)
  return ownMembers(given)
}

function domainOf({ chainId, contract }: BootFacts) {
  return { chainId, contract }
}

const { countOf, invalid, membersOf } = formsOf('invalid_boot_statement', 'boot statement: ')
const base64Of = base64FormOf(invalid)

/**
 * The boot statement that attacker-controlled `json` is. Throws FormatError
 * `invalid_boot_statement` naming the member.
 */
export function parseBootStatement(json: Json): BootStatement {
  const given = membersOf(json, 'it', ['heads', 'created_at', 'document'])
  const createdAt = countOf(given.created_at, 'created_at')
  const document = base64Of(given.document, 'document', BUNDLE_DOCUMENT_BYTES_MAX)
  return { heads: parseBootHeads(given.heads), created_at: createdAt, document }
}
