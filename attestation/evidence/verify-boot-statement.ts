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
import { parseBootConfiguration } from './boot-facts.ts'
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
import {
  type CheckTable,
  isRefused,
  type Judgement,
  judgeChecks,
  orderChecks,
  refuseForm,
} from './verdict.ts'
import type { AttestedLog } from './verify-head-attestation.ts'

export type BootStatementCheckName = keyof typeof BOOT_STATEMENT_CHECKS

/** All checks. Each value states when `verified` needs that check. */
const BOOT_STATEMENT_CHECKS = {
  /** The statement and the boot configuration are well-formed. If not, no other check is made. */
  format: 'always',
  /** The document was genuine when it was made: trusted root, chain, signature. */
  'attestation document': 'always',
  /** The document names the notary's key. */
  'attestation key': 'always',
  /** Each head was signed by its notary, for the chain and contract of the configuration. */
  'head signatures': 'always',
  /** The document covers exactly these heads, this log and this boot configuration. */
  statement: 'always',
  /** `created_at` is the time of the document in whole seconds. */
  created_at: 'always',
  /** The document is genuine and has the measurements that the caller expects. */
  measurements: 'always',
  /** The caller expects the boot configuration. */
  'expected configuration': 'always',
} as const satisfies CheckTable<string>

export type BootStatementReport = Judgement<BootStatementCheckName> & {
  readonly checks: readonly Check<BootStatementCheckName>[]
  /** Null if the statement is invalid. */
  readonly facts: BootStatementFacts | null
}

/** The facts of a boot statement that is not invalid. Only facts whose checks passed. */
export type BootStatementFacts = {
  /** The notary of the enclave that received the heads. */
  readonly notary: string
  readonly heads: readonly BootHead[]
  /** Unix milliseconds, by the security module's clock. */
  readonly timestampMs: number
  /** All PCR values of the document, 48 bytes each by index. */
  readonly measurements: ReadonlyMap<number, Uint8Array>
  /** Null if the policy accepts the code by its measurements, not by a release. */
  readonly release: Release | null
}

/**
 * Checks all facts of a boot statement, without a network or a clock. `json` and `log` are
 * attacker-controlled: read their text with parseExactJson. Never rejects because of their content.
 * Rejects with PolicyError, before any check, if policy or context has a wrong form. `recover`: see
 * recoverPublicKey.
 *
 * If verified: an enclave of the expected code and configuration, which holds the notary's key,
 * received these heads before its log had a leaf. Before that, each head was signed by its notary.
 *
 * Does NOT prove: that these are all logs that existed, or their newest heads (the gateway chose
 * the heads); that the other notaries are enclaves; that the logs did not change (prove that with
 * verifyConsistency).
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
    domain: parseBootConfiguration(log.bootConfiguration),
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
          "expected the document's user_data to be of these heads, " +
            'by this log under this boot configuration, and no nonce',
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
  const judgement = judgeChecks(checks, { table: BOOT_STATEMENT_CHECKS })
  if (isRefused(judgement.verdict)) return { ...judgement, checks, facts: null }
  const { timestampMs, pcrs: measurements } = need(document)
  const release = findExpectedCode(need(document), policy)?.release ?? null
  return { ...judgement, checks, facts: { notary, heads, timestampMs, measurements, release } }
}

/** Throws PolicyError if `given` inherits members, because ownMembers would miss them. */
function readOwn<Given extends BundleContext>(given: Given): Given {
  if (!hasOwnMembersAlone(given)) readContext(given)
  return ownMembers(given)
}

const { countOf, invalid, membersOf } = formsOf('invalid_boot_statement', 'boot statement: ')
const base64Of = base64FormOf(invalid)

/**
 * Reads the boot statement in attacker-controlled `json`. Throws FormatError
 * `invalid_boot_statement` naming the member.
 */
export function parseBootStatement(json: Json): BootStatement {
  const given = membersOf(json, 'it', ['heads', 'created_at', 'document'])
  const createdAt = countOf(given.created_at, 'created_at')
  const document = base64Of(given.document, 'document', BUNDLE_DOCUMENT_BYTES_MAX)
  return { heads: parseBootHeads(given.heads), created_at: createdAt, document }
}
