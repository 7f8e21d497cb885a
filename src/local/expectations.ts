import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { decodeBase64, encodeHex } from '#attestation/bytes.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import type { Home } from '../storage/data-folder.ts'

/** Facts about a development gateway's enclaves, in the form that the client's `connect` takes. */
export type DevelopmentExpectations = {
  /** Hex by register name. */
  readonly measurements: readonly Readonly<Record<string, string>>[]
  /** Digests of boot configurations, hex. */
  readonly configurations: readonly string[]
  /** PEM. */
  readonly roots: readonly string[]
}

const EXPECTATIONS_FILE = 'expect.json'

/** Registers that identify the running code: image, kernel, application. */
const CODE_REGISTERS = [0, 1, 2] as const

/**
 * Writes the expectations into the data folder at each start, because the demo provider's port
 * changes, and the configuration contains the port. Null when the operator runs the enclaves. The
 * file proves nothing, because the gateway itself wrote it: use a release to check a real gateway.
 */
export async function writeExpectations({
  home,
  local,
  enclaves,
}: {
  readonly home: Home | null
  readonly local: { readonly rootFile: string } | null
  readonly enclaves: Pick<EnclavePool, 'notaries'>
}): Promise<{ readonly file: string; readonly expectations: DevelopmentExpectations } | null> {
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
  const expectations: DevelopmentExpectations = {
    measurements: distinct(measurements),
    configurations: distinct(configurations),
    roots: [await readFile(local.rootFile, 'utf8')],
  }
  const file = join(home.dataFolder, EXPECTATIONS_FILE)
  await writeFile(file, `${JSON.stringify(expectations, null, 2)}\n`)
  return { file, expectations }
}

function distinct<Value>(values: readonly Value[]): readonly Value[] {
  return [...new Map(values.map((value) => [JSON.stringify(value), value])).values()]
}
