import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ProviderEntry } from '../protocol/messages.ts'
import { BUILT_IN_PROVIDERS } from '../providers/built-in-table.ts'
import { PROVIDERS_MAX, parseProviderTable } from '../providers/parse-table.ts'
import { parseCas } from '../providers/trusted-cas.ts'
import { BuildError } from './build-error.ts'
import type { TreeEntry } from './file-tree.ts'
import type { ImageOptions } from './options.ts'
import { readInput } from './read-input.ts'
import { runCommand } from './run-command.ts'
import { type ImageSettings, listBridges } from './settings-files.ts'

/**
 * Gives the settings that the options and the files they name ask for, checked as the enclave will check them. Throws
 * BuildError `options`.
 */
export async function readSettings(
  options: Pick<ImageOptions, 'chainId' | 'contract' | 'isDevelopment' | 'providersFile' | 'caFile'>,
  { node, cache }: { readonly node: TreeEntry; readonly cache: string },
): Promise<ImageSettings> {
  const { chainId, contract, isDevelopment, providersFile, caFile } = options
  const cas = caFile === null ? await readCarriedCas(node, cache) : await readInput(caFile)
  attempt(caFile ?? 'CAs of Node.js', () => parseCas(cas))
  const providers =
    providersFile === null
      ? BUILT_IN_PROVIDERS
      : attempt(providersFile, parseProviderTable.bind(null, await readInput(providersFile)))
  const fault = isDevelopment ? findDemoFault(providers) : findClearFault(providers)
  if (fault !== null) throw new BuildError('options', `${providersFile}: ${fault}`)
  checkReach(providers, providersFile)
  return { chainId, contract, isDevelopment, providers, cas }
}

function findClearFault(providers: readonly ProviderEntry[]): string | null {
  const isClear = providers.some(({ origin }) => !origin.startsWith('https:'))
  return isClear ? 'expected https origins alone in a production image' : null
}

/** A development image adds an entry of its own. */
function findDemoFault(providers: readonly ProviderEntry[]): string | null {
  const hasRoom = providers.length < PROVIDERS_MAX && providers.every(({ name }) => name !== 'demo')
  return hasRoom ? null : 'expected room for an entry called demo in a development image'
}

/** The enclave has no network: only to names can /etc/hosts lead a bridge. Calls to others could but fail. */
function checkReach(providers: readonly ProviderEntry[], file: string | null): void {
  const lost = providers.find(
    (provider) => provider.origin.startsWith('https:') && listBridges([provider]).length === 0,
  )
  if (lost !== undefined)
    throw new BuildError(
      'options',
      `${file}: expected the name of a host that a bridge can lead to, got ${lost.origin}`,
    )
}

/** Each certificate and a newline, as trusted-cas.ts takes them when no file is given. */
const PRINT_CAS =
  "process.stdout.write(require('node:tls').rootCertificates.map((certificate) => certificate + '\\n').join(''))"

/**
 * The CAs that the image's own Node.js carries: those of whatever Node.js runs the builder may be others. It is run without
 * a variable, so that nothing of this machine has a say.
 */
async function readCarriedCas(node: TreeEntry, cache: string): Promise<Uint8Array> {
  if (node.kind !== 'file') throw new BuildError('package_incomplete', 'expected Node.js to be a file')
  await mkdir(cache, { recursive: true })
  const folder = await mkdtemp(join(cache, 'node-'))
  try {
    const file = join(folder, 'node')
    await writeFile(file, node.data, { mode: 0o755 })
    return new Uint8Array(await runCommand({ file, arguments: ['-e', PRINT_CAS], environment: {} }))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

function attempt<Value>(file: string, parse: () => Value): Value {
  try {
    return parse()
  } catch (error) {
    throw new BuildError('options', `${file}: ${error instanceof Error ? error.message : 'unreadable'}`)
  }
}
