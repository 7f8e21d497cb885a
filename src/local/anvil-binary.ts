import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

/** The suffixes of the platform packages of @foundry-rs/anvil 1.x (its const.mjs), by `process.platform`-`process.arch`. */
const PLATFORM_PACKAGES: Readonly<Record<string, string>> = {
  'darwin-arm64': 'darwin-arm64',
  'darwin-x64': 'darwin-amd64',
  'linux-arm64': 'linux-arm64',
  'linux-x64': 'linux-amd64',
  'win32-x64': 'win32-amd64',
}

/**
 * Path of anvil's own executable. The package's `anvil` command is a Node.js program around it that ignores a SIGKILL
 * of its parent and costs a process; so it is passed by. Throws when the package has no build for this platform.
 */
export function findAnvilBinary(platform: NodeJS.Platform, architecture: string): string {
  const suffix = PLATFORM_PACKAGES[`${platform}-${architecture}`]
  if (suffix === undefined) throw new Error(`anvil has no build for ${platform} ${architecture}`)
  // Resolved from the package that depends on it, which also finds it when it is nested there.
  const fromAnvil = createRequire(createRequire(import.meta.url).resolve('@foundry-rs/anvil/package.json'))
  const folder = dirname(fromAnvil.resolve(`@foundry-rs/anvil-${suffix}/package.json`))
  return join(folder, 'bin', platform === 'win32' ? 'anvil.exe' : 'anvil')
}
