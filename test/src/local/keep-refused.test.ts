import { execFile } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { folderOfTest } from '../../support/folders.ts'

/** A process that refuses one answer of a server, as an enclave does, and then goes on. */
const PROGRAM = `
  import { channel } from 'node:diagnostics_channel'
  import { createServer, get } from 'node:http'
  const server = createServer((_, response) => response.end('words of a provider')).listen(0)
  server.on('listening', () => get({ port: server.address().port, agent: false }, (body) => {
    body.resume().on('end', () => {
      channel('affidavit.refused_stream').publish({ body, code: 'late_event' })
      setTimeout(() => { console.log('goes on'); server.close() }, 50)
    })
  }))
`

async function refuseOne(folder: string): Promise<readonly string[]> {
  const recorder = pathToFileURL(join(import.meta.dirname, '../../../src/local/keep-refused.ts'))
  recorder.searchParams.set('folder', folder)
  const words = [`--import=${recorder.href}`, '--input-type=module', '--eval', PROGRAM]
  const { stdout } = await promisify(execFile)(process.execPath, words)
  return stdout.trim().split('\n')
}

it('a refused stream is in one file, as it came', async () => {
  const folder = join(folderOfTest(), 'refused')
  const said = await refuseOne(folder)
  const [name = '', ...others] = readdirSync(folder)
  expect(others).toEqual([])
  expect(name).toMatch(/-late_event\.txt$/)
  expect(readFileSync(join(folder, name), 'utf8')).toBe('words of a provider')
  expect(said).toEqual([expect.stringContaining('"refused_stream_kept"'), 'goes on'])
})

it('a folder that cannot be written does not end the enclave', async () => {
  const file = join(folderOfTest(), 'file')
  writeFileSync(file, '')
  const said = await refuseOne(join(file, 'refused'))
  expect(said).toEqual([expect.stringContaining('"refused_stream_not_kept"'), 'goes on'])
})
