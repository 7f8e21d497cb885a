import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { decodeBase64, encodeHex } from '#attestation/bytes.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import type { Home } from '../storage/data-folder.ts'

/** The policy that accepts a development gateway's enclaves. */
export type DevelopmentPolicy = {
  readonly enclaves: {
    /** Hex by register name. */
    readonly measurements: readonly Readonly<Record<string, string>>[]
    /** Digests of boot configurations, hex. */
    readonly configurations: readonly string[]
    /** PEM. */
    readonly roots: readonly string[]
  }
}

const POLICY_FILE = 'policy.json'

/** Registers that identify the running code: image, kernel, application. */
const CODE_REGISTERS = [0, 1, 2] as const

/**
 * Writes the policy into the data folder at each start, because the demo provider's port changes,
 * and the configuration contains the port. Null when the operator runs the enclaves. The file
 * proves nothing, because the gateway itself wrote it: use a release to check a real gateway. It
 * names no providers, so that the demo provider without a TEE may answer (the simulated TEE has its
 * own policy).
 */
export async function writePolicy({
  home,
  local,
  enclaves,
}: {
  readonly home: Home | null
  readonly local: { readonly rootFile: string } | null
  readonly enclaves: Pick<EnclavePool, 'notaries'>
}): Promise<{ readonly file: string; readonly policy: DevelopmentPolicy } | null> {
  if (home === null || local === null) return null
  const documents = enclaves
    .notaries()
    .map(({ attestation }) => decodeAttestationPayload(decodeBase64(attestation)))
  const measurements = documents.map(({ pcrs }) =>
    Object.fromEntries(
      CODE_REGISTERS.map((index) => [
        `PCR${index}`,
        encodeHex(pcrs.get(index) ?? new Uint8Array()),
      ]),
    ),
  )
  const configurations = documents.flatMap(({ userData }) =>
    userData === null ? [] : [encodeHex(userData)],
  )
  const policy: DevelopmentPolicy = {
    enclaves: {
      measurements: distinct(measurements),
      configurations: distinct(configurations),
      roots: [await readFile(local.rootFile, 'utf8')],
    },
  }
  const file = join(home.dataFolder, POLICY_FILE)
  await writeFile(file, `${JSON.stringify(policy, null, 2)}\n`)
  return { file, policy }
}

function distinct<Value>(values: readonly Value[]): readonly Value[] {
  return [...new Map(values.map((value) => [JSON.stringify(value), value])).values()]
}
