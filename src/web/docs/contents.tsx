import { Fragment } from 'preact'
import { useState } from 'preact/hooks'
import type { Group } from './interface.ts'

/** The list of all operations: beside the page, or folded above the page on a narrow screen. */
export function Contents({ groups }: { readonly groups: readonly Group[] }) {
  const [isOpen, setIsOpen] = useState(() => matchMedia('(min-width: 56rem)').matches)
  const [wanted, setWanted] = useState('')
  const words = wanted.toLowerCase().split(/\s+/)
  const found = groups.map(({ operations, ...group }) => ({
    ...group,
    operations: operations.filter(({ method, path, summary }) => {
      const text = `${method} ${path} ${summary} ${group.name}`.toLowerCase()
      return words.every((word) => text.includes(word))
    }),
  }))
  const isSearch = wanted.trim() !== ''
  return (
    <nav class="contents" aria-label="Operations">
      <details open={isOpen} onToggle={({ currentTarget }) => setIsOpen(currentTarget.open)}>
        <summary>Contents</summary>
        <ul>
          {SECTIONS.map(({ path, name }) => (
            <li key={path}>
              <a href={path}>{name}</a>
            </li>
          ))}
        </ul>
        <input
          type="search"
          aria-label="Find an operation"
          placeholder="Find: chat, keys, log …"
          value={wanted}
          onInput={({ currentTarget }) => setWanted(currentTarget.value)}
        />
        <p role="status" class="hidden-text">
          {isSearch && `${found.flatMap(({ operations }) => operations).length} operations`}
        </p>
        <ul>
          {found.map(
            (group) =>
              (!isSearch || group.operations.length > 0) && (
                <GroupEntry
                  key={group.path}
                  group={group}
                  isOpen={isSearch || group.path === location.pathname}
                />
              ),
          )}
        </ul>
      </details>
    </nav>
  )
}

const SECTIONS = [
  { path: '/docs#call', name: 'The verified call' },
  { path: '/docs#check', name: 'Check the answer' },
  { path: '/docs#words', name: 'What the words mean' },
] as const

function GroupEntry({
  group: { name, path, operations },
  isOpen,
}: {
  readonly group: Group
  /** True if the list includes the operations. */
  readonly isOpen: boolean
}) {
  return (
    <li>
      <a href={path} aria-current={path === location.pathname ? 'page' : undefined}>
        {name}
      </a>
      {isOpen && (
        <ul class="operations">
          {operations.map(({ operationId, method, path: at, summary }) => (
            <li key={operationId}>
              <a href={`${path}#${operationId}`} title={summary}>
                <b>{method}</b> <span>{breakable(at)}</span>
              </a>
            </li>
          ))}
        </ul>
      )}
    </li>
  )
}

/** The path may break after each slash. */
function breakable(path: string) {
  return path.split('/').map((segment, at) => (
    <Fragment key={segment}>
      {at > 0 && '/'}
      {at > 1 && <wbr />}
      {segment}
    </Fragment>
  ))
}
