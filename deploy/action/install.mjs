import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fail, inputOf, setOutput } from './runner.mjs'

/*
 * First step: finds the program, or installs the npm package into a separate folder. The package
 * must have the expected digest. Packages of the workflow are not used, and no package runs a
 * script.
 */

const version = inputOf('version')
const integrity = inputOf('integrity')
const program = inputOf('program')
if ((version === null) === (program === null))
  fail('expected one of the inputs version and program')
if (program !== null && integrity !== null)
  fail('integrity: expected version with it: a program that is there already is taken as it is')
setOutput('program', program === null ? install(version) : find(program))

function find(path) {
  const found = resolve(process.env.GITHUB_WORKSPACE ?? '.', path)
  if (!existsSync(found)) fail(`program: expected a file at ${found}`)
  return found
}

function install(wanted) {
  // Only an exact version is accepted: no tag, range, URL or npm option.
  if (!/^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/.test(wanted))
    fail(`version: expected an exact version such as 1.2.3, got ${JSON.stringify(wanted)}`)
  const expected = readIntegrity()
  const folder = mkdtempSync(join(process.env.RUNNER_TEMP ?? tmpdir(), 'affidavit-'))
  // The registry could serve other bytes for the same version tomorrow.
  const name = `affidavit@${wanted}`
  if (!npm(folder, ['pack', '--ignore-scripts', name])) fail(`${name} could not be fetched`)
  const file = readdirSync(folder).find((entry) => entry.endsWith('.tgz'))
  if (file === undefined) fail(`${name} could not be fetched`)
  const found = digestOf(readFileSync(join(folder, file)), expected)
  if (found !== expected.digest)
    fail(`integrity: expected the file of ${name} to be ${expected.digest}, got ${found}`)
  const words = ['install', '--prefix', folder, '--ignore-scripts', '--no-audit', '--no-fund']
  if (!npm(folder, [...words, `./${file}`])) fail(`${name} could not be installed`)
  return join(folder, 'node_modules/.bin/affidavit')
}

/** Not in the checkout, because a file .npmrc there could choose the registry. */
function npm(folder, words) {
  const stdio = ['ignore', 'inherit', 'inherit']
  return spawnSync('npm', words, { cwd: folder, stdio }).status === 0
}

function readIntegrity() {
  if (integrity === null)
    fail(
      'integrity: expected the digest of the package with version, as SHA256SUMS or npm tells it',
    )
  if (/^[0-9a-f]{64}$/i.test(integrity))
    return { algorithm: 'sha256', digest: integrity.toLowerCase() }
  if (/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity))
    return { algorithm: 'sha512', digest: integrity }
  return fail('integrity: expected sha512- and base64, or a SHA-256 of 64 hex digits')
}

function digestOf(bytes, { algorithm }) {
  const hash = createHash(algorithm).update(bytes)
  return algorithm === 'sha256' ? hash.digest('hex') : `sha512-${hash.digest('base64')}`
}
