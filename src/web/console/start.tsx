import './console.css'
import { showPage } from '../kit/frame.tsx'
import { takeDevelopmentExpectations } from '../verify/development-expectations.ts'
import { ConsolePage } from './console-page.tsx'

void takeDevelopmentExpectations().then(() => showPage(<ConsolePage />))
