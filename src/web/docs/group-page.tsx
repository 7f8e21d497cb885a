import { useEffect, useState } from 'preact/hooks'
import type { Group, Schemas } from './interface.ts'
import { OperationView } from './operation-view.tsx'
import type { Language } from './samples.ts'

export function GroupPage({
  group: { name, operations },
  schemas,
}: {
  readonly group: Group
  readonly schemas: Schemas
}) {
  const [language, onLanguage] = useState<Language>('curl')
  useEffect(() => {
    document.title = `${name} · ${document.title}`
  }, [name])
  return (
    <>
      <h1>{name}</h1>
      {operations.map((operation) => (
        <OperationView
          key={operation.operationId}
          operation={operation}
          schemas={schemas}
          language={language}
          onLanguage={onLanguage}
        />
      ))}
    </>
  )
}
