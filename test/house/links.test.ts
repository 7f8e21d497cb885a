import { describe, expect, it } from 'vitest'
import { findLinkFault, listLinks, withFolders } from './markdown-links.ts'
import { listTracked, readTracked } from './tracked-files.ts'

const files = listTracked()
const pages = files.filter((file) => file.endsWith('.md'))

it('every relative link of every page leads to a file and a heading that exist', () => {
  const links = pages.flatMap((page) => listLinks(page, readTracked(page)))
  const repository = { paths: withFolders(files), read: readTracked }
  const dead = links.flatMap((link) => {
    const fault = findLinkFault(link, repository)
    return fault === null ? [] : [`${link.file}:${link.line}: ${link.target}: ${fault}`]
  })
  expect(links.length).toBeGreaterThan(100)
  expect(dead).toEqual([])
})

describe('the check of links', () => {
  const texts = {
    'a/README.md': '# The `x` part (of A)\n\n## Same\n\n## Same\n',
    'README.md': '# Top\n',
    'b.ts': '',
  }
  const repository = {
    paths: withFolders(Object.keys(texts)),
    read: (path: string) => texts[path as keyof typeof texts],
  }
  const faultOf = (target: string) =>
    findLinkFault({ file: 'a/README.md', line: 1, target }, repository)

  it.each(['../README.md', '../README.md#top', '../b.ts#L7', '..', '#the-x-part-of-a', '#same-1'])(
    'the link %s leads somewhere',
    (target) => {
      expect(faultOf(target)).toBeNull()
    },
  )

  it.each(['README.txt', '../readme.md', '../README.md#Top', '../a/c/', '#same-2', '../../b.ts'])(
    'the link %s leads nowhere',
    (target) => {
      expect(faultOf(target)).not.toBeNull()
    },
  )
})
