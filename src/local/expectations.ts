import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { decodeBase64, encodeHex } from '../../attestation/bytes.ts'
import { decodeAttestationPayload } from '../../attestation/nitro/document.ts'

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
 * Gives the file's path, and what it says. Each start has another configuration, since the
 * demonstration provider listens elsewhere.
 *
 * It is the gateway's own word, so it proves nothing: use a release to check a real gateway.
 */
export async function writeExpectations({
  dataFolder,
  rootFile,
  documents,
}: {
  readonly dataFolder: string
  readonly rootFile: string
  /** Attestation documents of the enclaves, standard base64. */
  readonly documents: readonly string[]
}): Promise<{ readonly file: string; readonly expectations: DevelopmentExpectations }> {
  const enclaves = documents.map((text) => decodeAttestationPayload(decodeBase64(text)))
  const measurements = enclaves.map(({ pcrs }) =>
    Object.fromEntries(
      CODE_REGISTERS.map((index) => [
        `PCR${index}`,
        encodeHex(pcrs.get(index) ?? new Uint8Array()),
      ]),
    ),
  )
  const configurations = enclaves.flatMap(({ userData }) =>
    userData === null ? [] : [encodeHex(userData)],
  )
  const expectations: DevelopmentExpectations = {
    measurements: distinct(measurements),
    configurations: distinct(configurations),
    roots: [await readFile(rootFile, 'utf8')],
  }
  const file = join(dataFolder, EXPECTATIONS_FILE)
  await writeFile(file, `${JSON.stringify(expectations, null, 2)}\n`)
  return { file, expectations }
}

function distinct<Value>(values: readonly Value[]): readonly Value[] {
  return [...new Map(values.map((value) => [JSON.stringify(value), value])).values()]
}
