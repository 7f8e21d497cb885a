import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { fail, inputOf, setOutput } from './runner.mjs'

/*
 * First step: finds the program, or installs the npm package into a folder of its own. Neither the
 * packages of the workflow nor scripts of packages take part.
 */

const version = inputOf('version')
const program = inputOf('program')
if ((version === null) === (program === null))
  fail('expected one of the inputs version and program')
setOutput('program', program === null ? install(version) : find(program))

function find(path) {
  const found = resolve(process.env.GITHUB_WORKSPACE ?? '.', path)
  if (!existsSync(found)) fail(`program: expected a file at ${found}`)
  return found
}

function install(wanted) {
  // An exact version: a tag, a range, a URL or an option of npm is none.
  if (!/^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/.test(wanted))
    fail(`version: expected an exact version such as 1.2.3, got ${JSON.stringify(wanted)}`)
  const folder = mkdtempSync(join(process.env.RUNNER_TEMP ?? tmpdir(), 'affidavit-'))
  const words = ['install', '--prefix', folder, '--ignore-scripts', '--no-audit', '--no-fund']
  // Not in the checkout: a file .npmrc there would choose the registry.
  const { status } = spawnSync('npm', [...words, `affidavit@${wanted}`], {
    cwd: folder,
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  if (status !== 0) fail(`affidavit ${wanted} could not be installed`)
  return join(folder, 'node_modules/.bin/affidavit')
}
