import { useEffect } from 'preact/hooks'
import { askOwnGateway } from '../kit/gateway.ts'
import { Busy, FaultNotice } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { useLoaded } from '../kit/use-loaded.ts'
import { Contents } from './contents.tsx'
import { GroupPage } from './group-page.tsx'
import { type Group, groupsOf, type InterfaceDocument } from './interface.ts'
import { StartPage } from './start-page.tsx'

export function DocsPage() {
  const { value, fault, reload } = useLoaded(
    (signal) => askOwnGateway<InterfaceDocument>('/openapi.json', { signal }),
    [],
  )
  const groups = value === null ? [] : groupsOf(value)
  useFragment(groups)
  const isStart = location.pathname === '/docs'
  const group = groups.find(({ path }) => path === location.pathname)
  return (
    <div class="docs">
      <Contents groups={groups} />
      <div>
        {isStart && <StartPage groups={groups} />}
        {fault !== null && <FaultNotice fault={fault} onRetry={reload} />}
        {value === null && fault === null && <Busy what="Loading the interface" />}
        {value !== null && group !== undefined && (
          <GroupPage group={group} schemas={value.components.schemas} />
        )}
        {value !== null && group === undefined && !isStart && <NoGroup />}
      </div>
    </div>
  )
}

/**
 * Older links lead to one page with all operations. This hook opens the page of the operation that
 * the fragment names.
 */
function useFragment(groups: readonly Group[]): void {
  useEffect(() => {
    const follow = () => {
      const id = location.hash.slice(1)
      const group = groups.find(({ operations }) =>
        operations.some(({ operationId }) => operationId === id),
      )
      if (group !== undefined && group.path !== location.pathname)
        location.replace(`${group.path}#${id}`)
      // The browser did not find this element, because the page had not rendered it yet.
      else document.getElementById(id)?.scrollIntoView()
    }
    follow()
    window.addEventListener('hashchange', follow)
    return () => window.removeEventListener('hashchange', follow)
  }, [groups.length])
}

function NoGroup() {
  return (
    <>
      <h1>No such group</h1>
      <p>
        The interface has no group{' '}
        <OutsideText
          text={location.pathname.replace('/docs/', '')}
          isOneLine={true}
          shownMax={100}
        />
        . The contents list all groups, and <a href="/docs">the first page</a> has the verified
        call.
      </p>
    </>
  )
}
