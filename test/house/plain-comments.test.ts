import { expect, it } from 'vitest'
import {
  COMMENT_PHRASES,
  faultsOf,
  findOddNames,
  listComments,
  listOtherComments,
} from './plain-words.ts'
import { listTracked, readTracked } from './tracked-files.ts'

const sources = listTracked('*.ts', '*.tsx')

it('every comment is in plain words', () => {
  const comments = sources.flatMap((file) => listComments(file, readTracked(file)))
  expect(comments.length).toBeGreaterThan(10_000)
  expect(faultsOf(comments, COMMENT_PHRASES)).toEqual([])
})

/** Files of services, images, manifests and pages. */
const WITH_COMMENTS =
  /(?:Dockerfile|-init|\/run|\.(?:ya?ml|service|target|conf|env|example|mjs|css|sol|py))$/
/** The contract's comments are in its bytecode: solc hashes its source. */
const NOT_REWRITTEN = ['contracts/Affidavit.sol']

it('every comment of a service, an image, a manifest or a style sheet is in plain words', () => {
  const others = listTracked('.ci', 'client', 'contracts', 'deploy', 'enclave', 'src')
    .filter((file) => WITH_COMMENTS.test(file))
    .filter((file) => !NOT_REWRITTEN.includes(file))
  const comments = others.flatMap((file) => listOtherComments(file, readTracked(file)))
  expect(comments.length).toBeGreaterThan(150)
  expect(faultsOf(comments, COMMENT_PHRASES)).toEqual([])
})

/** On the wire: a member of the message between gateway and enclave. */
const ON_THE_WIRE = ['tells_completion']

it('no name in code has a word that the field has a term for', () => {
  const odd = sources.flatMap((file) => findOddNames(file, readTracked(file)))
  const isKept = (fault: string): boolean =>
    ON_THE_WIRE.some((name) => fault.startsWith(`${name}:`)) ||
    // A member more, in the data of tests, and the runner's own reason of a skip.
    fault.startsWith('note: test/')
  expect(odd.length).toBeGreaterThan(ON_THE_WIRE.length)
  expect(odd.filter((fault) => !isKept(fault))).toEqual([])
})
