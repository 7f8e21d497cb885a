import { encodeHex } from '../../attestation/bytes.ts'
import { digestBootConfiguration } from '../../attestation/evidence/boot-configuration.ts'
import { bootConfiguration } from '../boot-configuration.ts'
import { ConfigError, readConfig } from '../config.ts'
import { BuildError } from './build-error.ts'
import type { FileTree } from './file-tree.ts'

/**
 * Gives the digest, 64 hex digits, of the boot configuration that an enclave with these settings
 * files states. The code that reads the files at boot reads them here. So a release can say what to
 * expect before any enclave ran. Throws BuildError `options`.
 */
export function digestSettings(settings: FileTree): string {
  const variables = Object.fromEntries(
    textOf(settings, 'etc/affidavit/enclave.env')
      .split('\n')
      .filter((line) => line !== '')
      .map((line): [string, string] => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  )
  try {
    const config = readConfig(variables, (path) => bytesOf(settings, path.replace(/^\//, '')))
    return encodeHex(digestBootConfiguration(bootConfiguration(config)))
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    throw new BuildError(
      'options',
      `the settings are none that the enclave takes: ${error.faults.join('; ')}`,
    )
  }
}

function textOf(settings: FileTree, path: string): string {
  return new TextDecoder().decode(bytesOf(settings, path))
}

function bytesOf(settings: FileTree, path: string): Uint8Array {
  const entry = settings.get(path)
  if (entry?.kind !== 'file') throw new BuildError('options', `expected the settings to have ${path}`)
  return entry.data
}
