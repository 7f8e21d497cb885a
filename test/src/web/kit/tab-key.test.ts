import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

// By a name that the type checker does not follow: only the pages' own configuration has the types
// of a browser.
const TAB_KEY = new URL('../../../../src/web/kit/tab-key.ts', import.meta.url).href

/** Documents of one tab: they share its storage, and a browser may restore each of them. */
const items = new Map<string, string>()

beforeEach(() => {
  items.clear()
  vi.stubGlobal('sessionStorage', {
    getItem: (name: string) => items.get(name) ?? null,
    setItem: (name: string, text: string) => void items.set(name, text),
    removeItem: (name: string) => void items.delete(name),
  })
})
afterEach(() => {
  vi.unstubAllGlobals()
  vi.resetModules()
})

async function openDocument() {
  const reload = vi.fn()
  const replaceChildren = vi.fn()
  const listeners: ((event: { readonly persisted: boolean }) => void)[] = []
  const enter = () => {
    vi.stubGlobal('location', { reload })
    vi.stubGlobal('document', { body: { replaceChildren } })
  }
  enter()
  vi.stubGlobal('addEventListener', (_: 'pageshow', listener: (typeof listeners)[number]) =>
    listeners.push(listener),
  )
  vi.resetModules()
  const key = await import(TAB_KEY)
  const restore = () => {
    enter()
    for (const listener of listeners) listener({ persisted: true })
  }
  return { ...key, restore, reload, replaceChildren }
}

describe('the API key of a tab', () => {
  it('a page that comes back from the history after a sign-out has no key and no content', async () => {
    const first = await openDocument()
    first.holdKey('afd_secret', true)
    const second = await openDocument()
    expect(second.tabKey()).toBe('afd_secret')
    second.forgetKey()
    first.restore()
    expect(first.reload).toHaveBeenCalledOnce()
    expect(first.replaceChildren).toHaveBeenCalledExactlyOnceWith()
    expect(first.tabKey()).toBeNull()
  })

  it('a page that comes back after another key was signed in starts again with that key', async () => {
    const first = await openDocument()
    first.holdKey('afd_first', false)
    const second = await openDocument()
    second.forgetKey()
    second.holdKey('afd_second', true)
    first.restore()
    expect(first.reload).toHaveBeenCalledOnce()
    expect(first.tabKey()).toBe('afd_second')
  })

  it('a page that comes back without a sign-out keeps its key, also the page that signed out', async () => {
    const first = await openDocument()
    first.forgetKey()
    first.holdKey('afd_secret', false)
    await openDocument()
    first.restore()
    expect(first.reload).not.toHaveBeenCalled()
    expect(first.tabKey()).toBe('afd_secret')
  })
})
