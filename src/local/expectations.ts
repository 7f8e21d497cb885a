import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { decodeBase64, encodeHex } from '../../attestation/bytes.ts'
import { decodeAttestationPayload } from '../../attestation/nitro/document.ts'
import type { EnclavePool } from '../enclaves/enclave-pool.ts'
import type { Home } from '../storage/data-folder.ts'

/** What a development gateway says of its enclaves, as `connect` of the client takes it. */
export type DevelopmentExpectations = {
  /** Sets of measurements, hex by register name. */
  readonly measurements: readonly Readonly<Record<string, string>>[]
  /** Digests of boot configurations, hex. */
  readonly configurations: readonly string[]
  /** The root of their documents, PEM. */
  readonly roots: readonly string[]
}

/** File of the data folder that says what the development enclaves are. */
const EXPECTATIONS_FILE = 'expect.json'

/** Registers that say which code runs: image, kernel, application. */
const CODE_REGISTERS = [0, 1, 2] as const

/**
 * Writes what the enclaves of a development gateway are into its data folder, as `connect` of the
 * client takes it: measurements, digests of boot configurations, and the root of their documents.
 * Gives the file's path, and what it says; null where the enclaves are the operator's. Each start
 * has another configuration, since the demonstration provider listens elsewhere.
 *
 * It is the gateway's own word, so it proves nothing: use a release to check a real gateway.
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
