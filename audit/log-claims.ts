import { addressOf, type PointRecovery } from '#attestation/account.ts'
import { encodeHex, equalBytes } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { type BootFacts, parseBootConfiguration } from '#attestation/evidence/boot-facts.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { configurationOf } from '#attestation/release/release.ts'
import type { TreeHead } from '#attestation/tree-head.ts'
import type { LogContext } from './audit-context.ts'
import type { ChainSource } from './chain.ts'
import { isSigned } from './compare-heads.ts'
import type { Ledger } from './findings.ts'
import type { ServedLog } from './gateway.ts'

/**
 * Checks that the gateway's statements about a log agree, and that the auditor expects the log's
 * configuration.
 */
export function auditIdentity({ log, ledger, scope }: LogContext): void {
  const faults = listFaults(log)
  if (faults.length > 0)
    ledger.find('log_identity_invalid', { where: 'log', message: faults.join('; ') })
  const configurations = expectedConfigurations(scope.policy)
  const digest = digestBootConfiguration(log.bootConfiguration)
  if (configurations.length === 0)
    ledger.skip(
      'boot configuration',
      'no expected configurations were given, in releases or by an option; the configuration ' +
        `of this log is ${encodeHex(digest)}`,
    )
  else if (configurations.some((expected) => equalBytes(expected, digest)))
    ledger.pass('boot configuration')
  else
    ledger.find('configuration_unexpected', {
      where: 'log',
      message: `expected another boot configuration than ${encodeHex(digest)}`,
    })
}

/**
 * Returns the configurations that the auditor named. Without them, returns the configurations of
 * the expected releases, or none if a release has no configuration. The check of each attestation
 * document ensures that its image and configuration belong together.
 */
function expectedConfigurations({
  configurations = [],
  releases = [],
}: BundlePolicy): readonly Uint8Array[] {
  if (configurations.length > 0) return configurations
  const signed = releases.map(({ release }) => configurationOf(release))
  return signed.every((digest) => digest !== null) ? signed : []
}

/**
 * Runs after the walk. If no valid attestation document was seen, records that only the gateway
 * states the boot configuration.
 */
export function auditConfigurationSource(ledger: Ledger): void {
  if (ledger.passed('time attestations') + ledger.passed('attestation documents') > 0) return
  ledger.lack(
    'boot configuration',
    'no attestation document that names it was seen: only the gateway names it',
  )
}

/**
 * Returns null if no chain was given, its id is wrong, or the log's address does not have the
 * contract of this release. Otherwise returns the chain. Throws ChainFault.
 */
export async function auditLogContract({
  log,
  ledger,
  chain,
}: LogContext): Promise<ChainSource | null> {
  const { chainId, contract } = log.domain
  if (chain === null) {
    for (const check of ['anchors on chain', 'heads on chain', 'blocks of attestations'] as const)
      ledger.skip(check, 'no chain was given (--rpc)')
    return null
  }
  if (chain.chainId !== chainId) {
    const message = `the log is anchored on chain ${chainId}, but the endpoint serves chain ${chain.chainId}`
    ledger.find('wrong_chain', { where: 'log', message })
    return null
  }
  if (await chain.hasContract(contract)) return chain
  // Another contract can emit events without checking the signature.
  const message = `the code at ${contract} is not the contract of this release`
  ledger.find('contract_unknown', { where: 'log', message })
  return null
}

function listFaults({
  notary,
  publicKey,
  domain,
  bootConfiguration,
}: ServedLog): readonly string[] {
  try {
    const { chainId, contract }: BootFacts = parseBootConfiguration(bootConfiguration)
    return [
      ...(addressOf(publicKey) === notary
        ? []
        : ['the notary is not the address of the public key']),
      ...(chainId === domain.chainId && contract === domain.contract
        ? []
        : ['the boot configuration names another chain or contract']),
    ]
  } catch (fault) {
    if (fault instanceof FormatError) return [fault.message]
    throw fault
  }
}

/**
 * Compares the size and root that the gateway claims for a log with the data that it served. Claims
 * are not signed, but a wrong claim misleads readers. `servedSize`: size of the largest signed head
 * that was served before the claim. `tree`: built from all leaves, or null.
 */
export function auditClaims(
  claimed: ServedLog,
  given: {
    readonly ledger: Ledger
    readonly where: string
    readonly servedSize: number
    readonly tree: TreeHead | null
    readonly recover: PointRecovery
  },
): void {
  const { ledger, where, servedSize, tree, recover } = given
  const { size, root, head } = claimed
  const ownSize = head !== null && isSigned(head, { log: claimed, recover }) ? head.size : 0
  const signedSize = Math.max(servedSize, ownSize)
  if (signedSize > size)
    ledger.find('size_understated', {
      where,
      message: `the log claims ${size} leaves, but a signed head of ${signedSize} is served`,
    })
  if (tree === null || tree.size !== size) return
  if (!equalBytes(tree.root, root))
    ledger.find('head_root_mismatch', {
      where,
      message:
        `the log claims the root ${encodeHex(root)} for its ${size} leaves, but they hash to ` +
        `${encodeHex(tree.root)}`,
    })
}

export function auditSameLog(first: ServedLog, later: ServedLog, ledger: Ledger): void {
  const isSame =
    equalBytes(first.publicKey, later.publicKey) &&
    first.domain.chainId === later.domain.chainId &&
    first.domain.contract === later.domain.contract &&
    equalBytes(
      digestBootConfiguration(first.bootConfiguration),
      digestBootConfiguration(later.bootConfiguration),
    )
  if (isSame) return
  ledger.find('log_identity_invalid', {
    where: 'log, at the end',
    message: 'its key, chain, contract or boot configuration changed during the audit',
  })
}
