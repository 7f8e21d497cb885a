import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { BuildError } from './build-error.ts'
import {
  type DebianPackage,
  digestSha256,
  downloadPackage,
  fileNameOf,
  keepPackage,
  parsePackageList,
} from './debian-packages.ts'
import { PIN_FILES } from './pins.ts'
import { runCommand } from './run-command.ts'

/**
 * Renews the pins of all Debian packages in packages.json to the newest versions that apt trusts on
 * this computer. The fetched files stay in the cache. Returns the changes, one per line. The
 * publisher of an image must read them: apt checks only the archive's signature. Throws BuildError.
 */
export async function updatePackages(place: {
  readonly root: string
  readonly cache: string
}): Promise<string> {
  const path = join(place.root, PIN_FILES.packages)
  const pinned = parsePackageList(await readFile(path))
  const renewed: DebianPackage[] = []
  for (const old of pinned) renewed.push(await renewPin(old, place.cache))
  const lines = renewed.flatMap((next, index) => describeChange(pinned[index], next))
  if (lines.length === 0) return 'all packages are the newest\n'
  await writeFile(path, `${JSON.stringify(renewed, null, 2)}\n`)
  await runCommand({
    file: 'npx',
    arguments: ['biome', 'format', '--write', path],
    folder: place.root,
  })
  return lines.map((line) => `${line}\n`).join('')
}

/** Fields that `dpkg-deb --field` prints, in this order. */
const FIELDS = ['Package', 'Version', 'Architecture'] as const

async function renewPin(old: DebianPackage, cache: string): Promise<DebianPackage> {
  const wanted = old.follows === undefined ? old.name : await findFollowed(old.follows)
  const bytes = await downloadPackage({ name: wanted }, cache)
  const file = join(cache, 'newest.deb')
  await keepPackage(file, bytes)
  const printed = await runCommand({ file: 'dpkg-deb', arguments: ['--field', file, ...FIELDS] })
  const fields = new Map(printed.toString('utf8').split('\n').map(splitField))
  const [name = wanted, version = '', architecture = ''] = FIELDS.map((field) => fields.get(field))
  const renewed = { ...old, name, version, sha256: digestSha256(bytes), size: bytes.length }
  const [checked] = parsePackageList(Buffer.from(JSON.stringify([{ ...renewed, architecture }])))
  if (checked === undefined) throw new BuildError('pins_malformed', `${wanted} cannot be pinned`)
  await keepPackage(join(cache, fileNameOf(checked)), bytes)
  return checked
}

/**
 * Returns the only dependency of a package such as linux-image-cloud-amd64: the name of the newest
 * kernel package.
 */
async function findFollowed(name: string): Promise<string> {
  const words = ['depends', '--important', name]
  const printed = (await runCommand({ file: 'apt-cache', arguments: words })).toString('utf8')
  const followed = /^\s+Depends: (\S+)/m.exec(printed)?.[1]
  if (followed === undefined)
    throw new BuildError('package_unavailable', `${name} depends on nothing here`)
  return followed
}

function splitField(line: string): readonly [string, string] {
  const end = line.indexOf(': ')
  return [line.slice(0, end), line.slice(end + 2).trim()]
}

function describeChange(old: DebianPackage | undefined, next: DebianPackage): readonly string[] {
  if (old === undefined || (old.name === next.name && old.version === next.version)) return []
  return [`${old.name} ${old.version} -> ${next.name} ${next.version}`]
}
