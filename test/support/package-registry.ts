import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

/** A registry on this machine that has one version of one package, `affidavit`. */
export type PackageRegistry = {
  readonly url: string
  /** How often the package's file was fetched. */
  fetched: number
  /** The file that is served from now on; the registry's digest is always right for it. */
  file: Buffer
  close(): Promise<void>
}

/** Starts it. npm itself installs packages from it, with `npm_config_registry`. */
export async function startPackageRegistry(
  version: string,
  file: Buffer,
): Promise<PackageRegistry> {
  const server = createServer((request, response) => {
    if (request.url?.endsWith('.tgz')) {
      registry.fetched++
      response.end(registry.file)
      return
    }
    const sha512 = createHash('sha512').update(registry.file).digest('base64')
    const tarball = `${registry.url}/affidavit-${version}.tgz`
    const dist = { tarball, integrity: `sha512-${sha512}` }
    const one = { name: 'affidavit', version, bin: { affidavit: './program.mjs' }, dist }
    response.setHeader('content-type', 'application/json')
    response.end(
      JSON.stringify({
        name: 'affidavit',
        'dist-tags': { latest: version },
        versions: { [version]: one },
      }),
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const registry: PackageRegistry = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    fetched: 0,
    file,
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
  return registry
}

/** The file of a package `affidavit` with this program text, as npm packs it. */
export async function packProgram(version: string, program: string): Promise<Buffer> {
  const folder = await mkdtemp(join(tmpdir(), 'affidavit-package-'))
  const source = join(folder, 'source')
  await mkdir(source)
  const manifest = { name: 'affidavit', version, bin: { affidavit: './program.mjs' } }
  await writeFile(join(source, 'package.json'), JSON.stringify(manifest))
  await writeFile(join(source, 'program.mjs'), `#!/usr/bin/env node\n${program}`, { mode: 0o755 })
  await promisify(execFile)('npm', ['pack', '--ignore-scripts'], { cwd: source })
  const file = await readFile(join(source, `affidavit-${version}.tgz`))
  await rm(folder, { recursive: true })
  return file
}
