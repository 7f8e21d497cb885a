import { addressOf } from '#attestation/account.ts'
import { decodeBase64, equalBytes } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import { BOOT_HEADS_MAX, bootStatementUserData } from '#attestation/evidence/boot-statement.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { LogDomain } from '#attestation/tree-head.ts'
import type {
  BootStatementReply,
  EnclaveFaultCode,
  Identity,
} from '#enclave/protocol/enclave-api.ts'
import type { EnclaveClient } from '../../enclaves/enclave-client.ts'
import { EnclaveError } from '../../enclaves/enclave-errors.ts'
import type { Logger } from '../../observability/logger.ts'
import type { BootStatementsStore, StoredBootStatement } from './boot-statements-store.ts'

type BootStatements = {
  /**
   * Sends a new enclave the heads of other logs before its first call, and stores its statement
   * about these heads. Enclaves of earlier builds, and enclaves whose log has leaves, make no
   * statement. Throws EnclaveError when the enclave should be asked again, and the store's errors.
   */
  register(identity: Identity, enclave: Pick<EnclaveClient, 'stateBoot'>): Promise<void>
}

/** After these faults, a later attempt can succeed. */
const PASSING: ReadonlySet<EnclaveFaultCode> = new Set(['not_ready', 'too_busy'])

export function createBootStatements({
  store,
  domain,
  log,
}: {
  readonly store: BootStatementsStore
  readonly domain: LogDomain
  readonly log: Logger
}): BootStatements {
  /**
   * Notaries that need no further attempt. This set saves a database query in each check of an
   * enclave.
   */
  const settled = new Set<string>()

  async function ask(
    { notary }: Identity,
    enclave: Pick<EnclaveClient, 'stateBoot'>,
  ): Promise<BootStatementReply | null> {
    const known = await store.listNewestHeads(domain, BOOT_HEADS_MAX)
    const heads = known
      .filter((head) => head.notary !== notary)
      .toSorted((one, other) => (one.notary < other.notary ? -1 : 1))
    try {
      return await enclave.stateBoot(heads)
    } catch (error) {
      const code = error instanceof EnclaveError ? error.fault?.code : undefined
      if (code === undefined || PASSING.has(code)) throw error
      log.warn({ notary, code }, 'the enclave states no heads of earlier logs')
      return null
    }
  }

  return {
    async register(identity, enclave) {
      const { notary } = identity
      if (settled.has(notary)) return
      if ((await store.find(notary)) === null) {
        const reply = await ask(identity, enclave)
        if (reply !== null) await store.keep(readReply(reply, identity))
      }
      settled.add(notary)
    },
  }
}

/** Throws EnclaveError if the document is not from this enclave, or does not cover these heads. */
function readReply(
  { heads, document: base64 }: BootStatementReply,
  { notary, boot_configuration: boot }: Identity,
): StoredBootStatement {
  const document = decodeBase64(base64)
  const { publicKey, userData, timestampMs } = decodeAttestationPayload(document)
  const expected = bootStatementUserData({
    configuration: digestBootConfiguration(boot),
    notary,
    heads,
  })
  const isOfNotary = publicKey !== null && addressOf(publicKey) === notary
  if (!isOfNotary || userData === null || !equalBytes(userData, expected))
    throw new EnclaveError(
      'protocol',
      'expected a document of the enclave over the heads that came with it',
    )
  return {
    notary,
    heads: JSON.stringify(heads),
    document,
    createdAt: Math.floor(timestampMs / 1000),
  }
}
